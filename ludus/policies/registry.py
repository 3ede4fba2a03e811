"""Kinds of policies by name; the two kinds that are made of two others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.parts import load
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.base import Policy
from ludus.policies.checks import check_mode
from ludus.policies.specs import joined, part_of, spec_of

if TYPE_CHECKING:
    from ludus.core.device import Placement

POLICIES = {
    "action_values": "ludus.policies.action_values:ActionValuePolicy",
    "averaged": "ludus.policies.registry:AveragedPolicy",
    "actor_critic": "ludus.policies.actor_critic_policy:ActorCriticPolicy",
    "bot": "ludus.policies.bots:BotPolicy",
    "choice": "ludus.policies.choice:ChoicePolicy",
    "football_built_in": "ludus.policies.football:FootballBuiltIn",
    "football_script": "ludus.policies.football:FootballScript",
    "nfsp": "ludus.policies.registry:NFSPPolicy",
    "random": "ludus.policies.random:RandomPolicy",
    "tabular": "ludus.policies.tabular:TabularPolicy",
    "torch": "ludus.policies.torch_module:TorchPolicy",
}

_WHOLE: set[type] = set()  # classes whose policies keep the contract: to look costs as much as to build a small policy


def build_policy(spec: PolicySpec, weights: Weights) -> Policy:
    """The policy that `spec` describes, around `weights` (copied): `Class(spec, weights)`.

    Raises UnknownName for a kind that nobody registered, PolicyError if spec and weights do not fit each other.
    """
    kind = load("policy", spec.kind, POLICIES)
    if not (isinstance(kind, type) and callable(getattr(kind, "act", None))):
        raise PolicyError(
            f"policy kind {spec.kind!r} is not a class with a method `act`; see ludus.policies.base.Policy."
        )
    policy: Policy = kind(spec, weights)
    if kind not in _WHOLE:
        if not isinstance(policy, Policy):
            raise PolicyError(f"policy kind {spec.kind!r} lacks a part of the contract in ludus.policies.base.Policy.")
        _WHOLE.add(kind)
    return policy


# --------------------------------------------------------------------------------------------------------------------
# Two policies as the modes of one: what a learner plays in most of its games, and what it is worth.


class TwoPolicies:
    """Base of kinds whose config is {part: {"kind", "config"}} for two `parts`: specs of policies for the same spaces.

    The parts are modes, in which they explore; "explore" and "greedy" are the second one's. Weights: theirs, named "part/…".
    """

    parts: ClassVar[tuple[str, str]]
    modes: ClassVar[tuple[str, ...]]
    memory_shape: tuple[int, ...] | None = None

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self._parts = {part: build_policy(spec_of(spec, part), part_of(weights, part)) for part in self.parts}
        if len(weights) != sum(len(policy.weights()) for policy in self._parts.values()):
            raise PolicyError(
                f"a {spec.kind!r} policy has weights named {self.parts[0]}/… and {self.parts[1]}/…; given {', '.join(sorted(weights))}."
            )
        if any(policy.memory_shape is not None for policy in self._parts.values()):
            raise PolicyError(f"the parts of a {spec.kind!r} policy have no memory; give it policies that have none.")
        if len({policy.takes_ids for policy in self._parts.values()}) > 1:
            raise PolicyError(
                f"of the parts of a {spec.kind!r} policy one takes ids, the other tensors; give it two alike."
            )
        self.takes_ids = self._parts[self.parts[1]].takes_ids
        self.noise_width = max(policy.noise_width for policy in self._parts.values())

    def playing(self, mode: str) -> tuple[Policy, str]:
        """The part that plays in a mode, and its own mode. Raises PolicyError for an unknown one."""
        check_mode(self, mode)
        part = mode if mode in self.parts else self.parts[1]
        return self._parts[part], "greedy" if mode == "greedy" else "explore"

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
        policy, inner = self.playing(mode)
        act = policy.act(observation, mask, memory, noise[:, : policy.noise_width], mode=inner)
        return Act(act.action, act.logp)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `Policy.tabulate`."""
        policy, inner = self.playing(mode)
        return policy.tabulate(enumeration, player, mode=inner)

    @property
    def multiplications(self) -> int:
        """Of a row, of the larger part; 0 where torch cannot evaluate both."""
        found = [getattr(policy, "multiplications", 0) for policy in self._parts.values()]
        return max(found) if all(found) else 0

    @staticmethod
    def stack_on(policies: Sequence[TwoPolicies], placement: Placement) -> StackedTwo:
        """Policies of one spec as one, which computes where it says."""
        return StackedTwo(policies, placement)

    def weights(self) -> Weights:
        return joined({part: policy.weights() for part, policy in self._parts.items()})


class StackedTwo:
    """K policies of two on a device."""

    def __init__(self, policies: Sequence[TwoPolicies], placement: Placement) -> None:
        first = self._first = policies[0]
        self._stacks = {}
        for part in first.parts:
            own: list[Any] = [policy.playing(part)[0] for policy in policies]
            self._stacks[part] = type(own[0]).stack_on(own, placement)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        policy, inner = self._first.playing(mode)
        stack = self._stacks[mode if mode in self._stacks else self._first.parts[1]]
        act = stack.act(observation, mask, memory, noise[:, : policy.noise_width], index, inner)
        return Act(act.action, act.logp)


class NFSPPolicy(TwoPolicies):
    """Kind `nfsp`: a best response, and the average of what it was."""

    parts = ("best_response", "average")
    modes = ("explore", "greedy", "best_response", "average")


class AveragedPolicy(TwoPolicies):
    """Kind `averaged`: a learner's newest policy, and a slow average of it."""

    parts = ("newest", "average")
    modes = ("explore", "greedy", "newest", "average")
