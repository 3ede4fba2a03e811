"""What networks answer, as actions: numbers of actions, probabilities, logits, action values, or means of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import Chance, Refused, choose, restricted, starts

OUTPUTS = ("action", "logits", "probabilities", "values")


class Reader:
    """Makes actions of a network's outputs.

    Args:
        game: Of the message hello.
        output: What the first output is: one of `OUTPUTS`; "" where its type and shape tell.
        deterministic: Play the likeliest action instead of drawing one.
        masks: Play legal actions only.
    """

    def __init__(self, game: dict[str, Any], *, output: str, deterministic: bool, masks: bool) -> None:
        if output and output not in OUTPUTS:
            raise Refused(f"output={output!r} was given; one of {', '.join(OUTPUTS)} was expected.")
        self._game, self._output, self._masks = game, output, masks
        self.deterministic = deterministic
        self.chance = Chance()

    def counts(self, player: int) -> list[int]:
        """Return the number of actions of a player, of each number where there are several; [] of boxes."""
        space = self._game["players"][player]["action"]
        if space["type"] == "discrete":
            return [space["n"]]
        if space["type"] == "multi_discrete":
            return [int(n) for n in np.ravel(space["nvec"])]
        return [] if space["type"] == "box" else [2] * int(np.prod(space["shape"]))

    def actions(
        self,
        player: int,
        slots: list[Any],
        seeds: list[int],
        mask: Any,
        value: Any,
        name: str = "",
    ) -> list[Any]:
        """Return an action per row.

        Args:
            player: Who acts.
            slots: [n] what tells episodes apart.
            seeds: [n] of the episodes that begin; -1 of others.
            mask: bool[n, A]; None: all actions are legal.
            value: [n, …], the first output.
            name: Of that output, which may tell what it is.

        Raises:
            Refused: For an output that is no action, nor a number for each of them.
        """
        counts, value = self.counts(player), np.asarray(value)
        output = self._output or self._kind(value, counts, name)
        legal = mask if self._masks else None
        if output == "action":
            space = self._game["players"][player]["action"]
            rows = value.reshape(len(slots), *space.get("shape", [len(counts)] if space["type"] != "discrete" else []))
            return list(rows)
        if value.reshape(len(slots), -1).shape[1] != sum(counts):
            raise Refused(
                f"{name or 'the first output'} has shape {list(value.shape)}; {output} of {sum(counts)} actions for {len(slots)} rows "
                "were expected."
            )
        parts = np.split(value.reshape(len(slots), -1).astype(np.float64), np.cumsum(counts)[:-1], axis=1)
        masks = [None] * len(counts) if legal is None else np.split(legal, np.cumsum(counts)[:-1], axis=1)
        if output == "values":
            return self._numbered(player, [greedy(part, one) for part, one in zip(parts, masks, strict=True)])
        if output == "logits":
            parts = [softmax(part, one) for part, one in zip(parts, masks, strict=True)]
        return self.sample(player, slots, seeds, mask, parts)

    def _kind(self, value: Any, counts: list[int], name: str) -> str:
        if not counts or value.dtype.kind in "iu":
            return "action"
        lower = name.lower()
        if "prob" in lower:
            return "probabilities"
        return "values" if lower.startswith("q") or "value" in lower else "logits"

    def sample(self, player: int, slots: list[Any], seeds: list[int], mask: Any, parts: list[Any]) -> list[Any]:
        """Return actions by the probabilities of each number's values. parts: of each number [n, values]."""
        legal = mask if self._masks else None
        cuts = np.cumsum([part.shape[1] for part in parts])[:-1]
        masks = [None] * len(parts) if legal is None else np.split(legal, cuts, axis=1)
        draws = None if self.deterministic else self.chance.draws(slots, seeds, len(parts))
        chosen = [
            choose(restricted(part, one), None if draws is None else draws[:, k])
            for k, (part, one) in enumerate(zip(parts, masks, strict=True))
        ]
        return self._numbered(player, chosen)

    def _numbered(self, player: int, chosen: list[Any]) -> list[Any]:
        """chosen: of each number [n]."""
        space = self._game["players"][player]["action"]
        if space["type"] == "discrete":
            return list(chosen[0] + starts(self._game, player))
        rows = np.stack(chosen, axis=1)
        shape = np.shape(space["nvec"]) if "nvec" in space else tuple(space["shape"])
        return list(rows.reshape(len(rows), *shape) + starts(self._game, player))


def greedy(values: Any, mask: Any) -> Any:
    """Return int64[n]: the first action of the largest value among the legal ones."""
    return (values if mask is None else np.where(mask, values, -np.inf)).argmax(axis=1)


def softmax(logits: Any, mask: Any) -> Any:
    """Return probabilities [n, A], 0 where illegal."""
    values = logits if mask is None else np.where(mask, logits, -np.inf)
    weights = np.exp(values - values.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
