"""Policies that `ludus export` wrote: what their signature says goes in and comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .common import require_actions, require_box
from .outputs import Reader

_MEMBER = 0x4D454D42  # tells the draw of an episode's member from those of its decisions


class SignedPolicy:
    """Plays by a function whose inputs and outputs a signature names.

    Args:
        game: Of the message hello.
        signature: As the exported file has it.
        run: Takes inputs by name, and returns outputs by name.
        what: The file, in messages.
        deterministic: Play the best action in every mode.
        masks: Whether the network is given the legal actions; without, all count as legal.
    """

    def __init__(
        self,
        game: dict[str, Any],
        signature: Mapping[str, Any],
        run: Callable[[dict[str, Any]], Mapping[str, Any]],
        *,
        what: str,
        deterministic: bool,
        masks: bool,
    ) -> None:
        self._signature, self._run, self._masks = signature, run, masks
        self._greedy = [deterministic or mode == "greedy" for mode in signature["modes"]]
        self._reader = Reader(game, output="", deterministic=False, masks=masks)
        self._member: dict[Any, int] = {}
        self._memory: dict[Any, Any] = {}
        require_box(game, tuple(signature["observation"]), "", what=what)
        kind, choices = signature["kind"], list(signature["choices"])
        if kind == "discrete":
            require_actions(game, "discrete", choices[0], what=what)
        elif kind == "multi_discrete":
            if [self._reader.counts(player) for player in range(len(game["players"]))] != [choices] * len(
                game["players"]
            ):
                require_actions(game, "multi_discrete", choices, what=what)
        else:
            require_actions(game, "box", signature["box"]["shape"], what=what)

    def act(self, player: int, slots: list[Any], seeds: list[int], observation: Any, mask: Any) -> list[Any]:
        """Return an action per row, as `Reader.actions`."""
        for slot, seed in zip(slots, seeds, strict=True):
            if seed >= 0:
                draw = np.random.default_rng((seed, _MEMBER)).random()
                cumulative = np.cumsum(self._signature["probabilities"])
                self._member[slot] = min(int((draw >= cumulative).sum()), len(cumulative) - 1)
                self._memory[slot] = np.zeros(self._signature["memory"], np.float32)
        n, choices = len(slots), list(self._signature["choices"])
        members = np.array([self._member[slot] for slot in slots], np.int64)
        values = {
            "observation": observation.astype(np.float32),
            "mask": np.ones((n, sum(choices)), np.bool_) if mask is None or not self._masks else mask,
            "memory": np.stack([self._memory[slot] for slot in slots]),
            "member": members,
        }
        out = self._run({name: values[name] for name in self._signature["inputs"]})
        if self._signature["memory"]:
            for slot, row in zip(slots, np.asarray(out["next_memory"]), strict=True):
                self._memory[slot] = row
        best = np.array([self._greedy[member] for member in members])
        if choices:
            return self._chosen(player, slots, seeds, mask, out, best)
        return self._moved(slots, seeds, out, best)

    def _chosen(
        self, player: int, slots: list[Any], seeds: list[int], mask: Any, out: Mapping[str, Any], best: Any
    ) -> list[Any]:
        cuts = np.cumsum(self._signature["choices"])[:-1]
        parts = np.split(np.asarray(out["probabilities"], np.float64), cuts, axis=1)
        scores = np.split(np.asarray(out["scores"]), cuts, axis=1)
        for part, score in zip(parts, scores, strict=True):
            part[best] = np.eye(part.shape[1])[score[best].argmax(axis=1)]
        return self._reader.sample(player, slots, seeds, mask, parts)

    def _moved(self, slots: list[Any], seeds: list[int], out: Mapping[str, Any], best: Any) -> list[Any]:
        box, shape = self._signature["box"], self._signature["box"]["shape"]
        mean = np.asarray(out["mean"]).reshape(len(slots), -1)
        noise = self._reader.chance.draws(slots, seeds, mean.shape[1], normal=True)
        number = mean + np.asarray(out["std"]).reshape(mean.shape) * noise
        if self._signature["kind"] == "tanh":
            number = np.tanh(number)
        low, high = (
            np.array([sign * np.inf if value is None else value for value in box[name]])
            for name, sign in (("low", -1), ("high", 1))
        )
        action = np.clip(np.array(box["middle"]) + np.array(box["half"]) * number, low, high).reshape(-1, *shape)
        exact = np.asarray(out["action"]).reshape(action.shape)
        return list(np.where(best.reshape(-1, *[1] * len(shape)), exact, action).astype(np.float32))
