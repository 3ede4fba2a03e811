"""A policy that picks, at each decision, which of several others acts: what is learned in a restricted game (NXDO, McAleer et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.base import Policy
from ludus.policies.categorical import CategoricalPolicy, draw, full_mask
from ludus.policies.checks import check_mode
from ludus.policies.registry import TwoPolicies, build_policy
from ludus.policies.specs import joined, part_of, spec_of

CHOICE, CHOICE_LOGP = "choice", "choice_logp"
"""Extras: int32[n], which member acted, and float32[n], how likely it was to be picked."""


class ChoicePolicy:
    """Kind `choice`; config {"chooser": {kind, config}, "members": [{kind, config, mode}, …]}: a policy over K actions, all legal, and K
    policies of the game, each played in its mode. Weights: theirs, named "chooser/…", "0/…", "1/…" and so on. All have action probabilities.

    A mode is the chooser's. `Act.logp` is that of the action, whoever was picked."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")  # and what others the chooser has
    memory_shape: tuple[int, ...] | None = None
    noise_width = 2  # who is picked, and what it does
    extras: ClassVar[tuple[str, ...]] = (CHOICE, CHOICE_LOGP)

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raises PolicyError for no members, for parts without action probabilities (they have memory, say), and for those of which some
        take ids and others tensors."""
        self.spec = spec
        self._chooser = build_policy(spec_of(spec, "chooser"), part_of(weights, "chooser"))
        self._members = [
            build_policy(PolicySpec(entry["kind"], entry["config"]), part_of(weights, str(k)))
            for k, entry in enumerate(_entries(spec))
        ]
        how = [str(entry["mode"]) for entry in _entries(spec)]
        self._playing = [_playing(member, mode) for member, mode in zip(self._members, how, strict=True)]
        parts = [_playing(self._chooser, "explore")[0], *(part for part, _ in self._playing)]
        if len({part.takes_ids for part in parts}) > 1:
            raise PolicyError(
                "of the parts of a 'choice' policy some take ids, others tensors; give it tables alone, or networks alone."
            )
        self.modes = self._chooser.modes  # type: ignore[misc] - as many as this one's chooser has
        self.takes_ids = parts[0].takes_ids

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`. Raises PolicyError for an unknown mode."""
        picks, members = self._probabilities(observation, mask, mode)
        choice, choice_logp = draw(picks, noise[:, :1])
        rows = np.arange(len(choice))
        action, _ = draw(members[choice, rows], noise[:, 1:])
        with np.errstate(divide="ignore"):
            logp = np.log(np.einsum("nk,kn->n", picks, members[:, rows, action])).astype(np.float32)
        return Act(action, logp, extras={CHOICE: choice, CHOICE_LOGP: choice_logp})

    def _probabilities(
        self, observation: Array, mask: NDArray[np.bool_] | None, mode: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(float64[n, K] of the members, float64[K, n, A] of what each does)."""
        check_mode(self, mode)
        chooser, own = _playing(self._chooser, mode)
        n, count = len(observation), len(self._members)
        picks = chooser.probabilities(observation, np.ones((n, count), np.bool_), mode=own)[0]
        legal = full_mask(mask, n, self._playing[0][0].actions)
        members = [part.probabilities(observation, legal, mode=how)[0] for part, how in self._playing]
        return picks, np.stack(members)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `Policy.tabulate`: the members' probabilities, as often as each is picked."""
        ids = enumeration.ids(player)
        observation: Array = np.arange(ids.start, ids.stop, dtype=np.int32)
        if not self.takes_ids:
            observation = enumeration.observation[ids]
        picks, members = self._probabilities(observation, np.ascontiguousarray(enumeration.mask[ids]), mode)
        return np.asarray(np.einsum("nk,kna->na", picks, members))

    def weights(self) -> Weights:
        members = {str(k): member.weights() for k, member in enumerate(self._members)}
        return joined({"chooser": self._chooser.weights(), **members})


def _playing(policy: Policy, mode: str) -> tuple[CategoricalPolicy, str]:
    """Whose probabilities those of a policy are in a mode, and its own mode."""
    if isinstance(policy, TwoPolicies):
        policy, mode = policy.playing(mode)
    if not isinstance(policy, CategoricalPolicy) or policy.memory_shape is not None or not policy.actions:
        raise PolicyError(
            f"the parts of a 'choice' policy say how likely each action is, and a {policy.spec.kind!r} policy does not (it has memory, "
            "or acts otherwise). Give it others."
        )
    return policy, mode


def choice_spec(chooser: PolicySpec, members: Sequence[tuple[Policy, str]]) -> PolicySpec:
    """The spec of a `ChoicePolicy`. members: each with the mode that it is played in."""
    entries = [{"kind": member.spec.kind, "config": dict(member.spec.config), "mode": mode} for member, mode in members]
    return PolicySpec("choice", {"chooser": {"kind": chooser.kind, "config": dict(chooser.config)}, "members": entries})


def _entries(spec: PolicySpec) -> Sequence[Mapping[str, Any]]:
    found = spec.config.get("members")
    if not isinstance(found, Sequence) or not found or not all({"kind", "config", "mode"} <= set(e) for e in found):
        raise PolicyError(f"the config of a 'choice' policy has members: [{{kind, config, mode}}, …]; given {found!r}.")
    return found
