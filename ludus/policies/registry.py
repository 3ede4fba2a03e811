"""Kinds of policies by name, and the kinds that consist of others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.parts import Registry, missing, resolve_name
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights, condition_mode
from ludus.policies.base import Policy, check_mode, reject_extra_weights
from ludus.policies.categorical import CategoricalPolicy, draw, full_mask
from ludus.policies.specs import joined, part_of, spec_of

if TYPE_CHECKING:
    from ludus.backend.device import Placement

POLICIES: Final = Registry(
    "policy",
    "ludus.policies",
    {
        "action_values": "ludus.policies.action_value_policy:ActionValuePolicy",
        "averaged": "ludus.policies.registry:AveragedPolicy",
        "actor_critic": "ludus.policies.actor_critic_policy:ActorCriticPolicy",
        "actor_values": "ludus.policies.actor_values:ActorValuesPolicy",
        "bot": "ludus.policies.bots:BotPolicy",
        "choice": "ludus.policies.registry:ChoicePolicy",
        "conditioned": "ludus.policies.registry:ConditionedPolicy",
        "nfsp": "ludus.policies.registry:NFSPPolicy",
        "random": "ludus.policies.random:RandomPolicy",
        "searching": "ludus.policies.search.policy:SearchingPolicy",
        "tabular": "ludus.policies.categorical:TabularPolicy",
        "torch": "ludus.policies.torch_module:TorchPolicy",
    },
)
"""By kind. Installed distributions add to them by entry points."""

_WHOLE: set[type] = set()  # classes whose policies keep the contract: to look costs as much as to build a small policy


def build_policy(spec: PolicySpec, weights: Weights) -> Policy:
    """Return the policy that `spec` describes, with copies of `weights`: `Class(spec, weights)`.

    Args:
        spec: Kind and configuration.
        weights: Arrays by name.

    Raises:
        UnknownName: The kind is not registered.
        PolicyError: Spec and weights do not fit each other.
    """
    kind = resolve_name("policy", spec.kind, POLICIES, expected=(("act",),))
    if not (isinstance(kind, type) and callable(getattr(kind, "act", None))):
        raise PolicyError(
            f"policy kind {spec.kind!r} is not a class with a method `act`; see ludus.policies.base.Policy."
        )
    policy: Policy = kind(spec, weights)
    if kind not in _WHOLE:
        if not isinstance(policy, Policy):
            raise PolicyError(f"policy kind {spec.kind!r} is no policy: {missing(policy, Policy)}.")
        _WHOLE.add(kind)
    return policy


# --------------------------------------------------------------------------------------------------------------------
# Two policies as the modes of one: what a learner plays in most of its games, and what it is worth.


class TwoPolicies:
    """Base of kinds whose config is {part: {"kind", "config"}} for two `parts`: specs of policies for the same spaces.

    The parts are modes, in which they explore; "explore" and "greedy" are the second one's. Their weights are named
    "part/…".
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
        """Return the part that plays in a mode, and its own mode. Raise PolicyError for an unknown one."""
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
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raise PolicyError for an unknown mode."""
        policy, inner = self.playing(mode)
        act = policy.act(observation, mask, memory, noise[:, : policy.noise_width], mode=inner)
        return PolicyOutput(act.action, act.logp)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        policy, inner = self.playing(mode)
        return policy.tabulate(enumeration, player, mode=inner)

    @property
    def multiplications(self) -> int:
        """Return the multiplications per row of the larger part; 0 where torch cannot evaluate both."""
        counts = [getattr(policy, "multiplications", 0) for policy in self._parts.values()]
        return max(counts) if all(counts) else 0

    @staticmethod
    def stack_on(policies: Sequence[TwoPolicies], placement: Placement) -> StackedTwo:
        """Return policies of one spec as one on a device."""
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
    ) -> PolicyOutput:
        """Implement `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        policy, inner = self._first.playing(mode)
        stack = self._stacks[mode if mode in self._stacks else self._first.parts[1]]
        act = stack.act(observation, mask, memory, noise[:, : policy.noise_width], index, inner)
        return PolicyOutput(act.action, act.logp)


class NFSPPolicy(TwoPolicies):
    """Kind `nfsp`: a best response, and the average of past ones."""

    parts = ("best_response", "average")
    modes = ("explore", "greedy", "best_response", "average")


class AveragedPolicy(TwoPolicies):
    """Kind `averaged`: a learner's newest policy, and a slow average of it."""

    parts = ("newest", "average")
    modes = ("explore", "greedy", "newest", "average")


# --------------------------------------------------------------------------------------------------------------------
# Several policies, of which one acts at each decision: what is learned in a restricted game (NXDO, McAleer et al. 2021).

CHOICE, CHOICE_LOGP = "choice", "choice_logp"
"""Extras: int32[n], which member acted, and float32[n], how likely it was to be picked."""


class ChoicePolicy:
    """Kind `choice`; config {"chooser": {kind, config}, "members": [{kind, config, mode}, …]}: a policy over K actions,
    all legal, and K policies of the game, each played in its mode. Their weights are named "chooser/…", "0/…", "1/…"
    and so on. All have action probabilities.

    A mode is the chooser's. `PolicyOutput.logp` is that of the action, summed over members.
    """

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")  # and what others the chooser has
    memory_shape: tuple[int, ...] | None = None
    noise_width = 2  # who is picked, and what it does
    extras: ClassVar[tuple[str, ...]] = (CHOICE, CHOICE_LOGP)

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raise PolicyError for no members, for parts without action probabilities (with memory, say), and for a
        mixture of parts that take ids and tensors."""
        self.spec = spec
        reject_extra_weights(spec, weights, ["chooser", *(str(k) for k in range(len(_entries(spec))))])
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
        self.modes = self._chooser.modes  # type: ignore[misc]  # as many as this one's chooser has
        self.takes_ids = parts[0].takes_ids

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raises PolicyError for an unknown mode."""
        picks, members = self._probabilities(observation, mask, mode)
        choice, choice_logp = draw(picks, noise[:, :1])
        rows = np.arange(len(choice))
        action, _ = draw(members[choice, rows], noise[:, 1:])
        with np.errstate(divide="ignore"):
            logp = np.log(np.einsum("nk,kn->n", picks, members[:, rows, action])).astype(np.float32)
        return PolicyOutput(action, logp, extras={CHOICE: choice, CHOICE_LOGP: choice_logp})

    def _probabilities(
        self, observation: Array, mask: NDArray[np.bool_] | None, mode: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (float64[n, K] of the members, float64[K, n, A] of their actions)."""
        check_mode(self, mode)
        chooser, own = _playing(self._chooser, mode)
        n, count = len(observation), len(self._members)
        picks = chooser.probabilities(observation, np.ones((n, count), np.bool_), mode=own)[0]
        legal = full_mask(mask, n, self._playing[0][0].actions)
        members = [part.probabilities(observation, legal, mode=how)[0] for part, how in self._playing]
        return picks, np.stack(members)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`: the members' probabilities, weighted by the chooser's."""
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
    """Return the policy whose action probabilities apply in a mode, and its own mode."""
    if isinstance(policy, TwoPolicies):
        policy, mode = policy.playing(mode)
    if not isinstance(policy, CategoricalPolicy) or policy.memory_shape is not None or not policy.actions:
        raise PolicyError(
            f"the parts of a 'choice' policy say how likely each action is, and a {policy.spec.kind!r} policy does not (it has memory, "
            "or acts otherwise). Give it others."
        )
    return policy, mode


def _entries(spec: PolicySpec) -> Sequence[Mapping[str, Any]]:
    members = spec.config.get("members")
    if (
        not isinstance(members, Sequence)
        or not members
        or not all({"kind", "config", "mode"} <= set(e) for e in members)
    ):
        raise PolicyError(
            f"the config of a 'choice' policy has members: [{{kind, config, mode}}, …]; given {members!r}."
        )
    return members


# --------------------------------------------------------------------------------------------------------------------
# One network for several policies, which reads which policy it is to play (NeuPL, Liu et al. 2022).

ROW = "row"
"""Extra: int32[n], which row acted."""


class ConditionedPolicy:
    """Kind `conditioned`; config {"network": {kind, config}}: a policy whose observations are those of the game, flat,
    followed by a condition. Weights: "network/…", and "condition" float32[R, D] of R policies.

    Each row is a mode, `condition_mode(k)`; "explore" and "greedy" are the last one's.
    """

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")  # and the rows
    takes_ids: bool = False
    extras: ClassVar[tuple[str, ...]] = (ROW,)

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raise PolicyError for weights without conditions, and a network that takes ids."""
        self.spec = spec
        reject_extra_weights(spec, weights, ["network"], "condition")
        self._network = build_policy(spec_of(spec, "network"), part_of(weights, "network"))
        if self._network.takes_ids:
            raise PolicyError("the network of a 'conditioned' policy sees tensors, and this one takes ids.")
        condition = np.asarray(weights.get("condition", ()))
        if condition.ndim != 2 or not condition.size or not np.isfinite(condition).all():
            raise PolicyError(
                f"the weights of a 'conditioned' policy have `condition` float[R, D], finite, with a row at least; given "
                f"{condition.tolist()}."
            )
        self._condition = condition.astype(np.float32)
        self._rows = {condition_mode(k): k for k in range(len(condition))}
        self.modes = ("explore", "greedy", *self._rows)  # type: ignore[misc]  # as many as there are rows
        self.noise_width = self._network.noise_width
        self.memory_shape = self._network.memory_shape

    def _playing(self, mode: str) -> tuple[int, str]:
        """Return the row of a mode, and the network's own mode."""
        check_mode(self, mode)
        return self._rows.get(mode, len(self._rows) - 1), "greedy" if mode == "greedy" else "explore"

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raises PolicyError for an unknown mode."""
        row, inner = self._playing(mode)
        act = self._network.act(conditioned(observation, self._condition[row]), mask, memory, noise, mode=inner)
        return act._replace(extras={**act.extras, ROW: np.full(len(observation), row, np.int32)})

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        row, inner = self._playing(mode)
        observation = conditioned(enumeration.observation, self._condition[row])
        return self._network.tabulate(replace(enumeration, observation=observation), player, mode=inner)

    def weights(self) -> Weights:
        return {"condition": self._condition.copy(), **joined({"network": self._network.weights()})}


def conditioned(observation: Array, condition: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return observations [n, …] with a condition float32[D], or one each float32[n, D], appended: float32[n, size +
    D]."""
    flat = np.asarray(observation, np.float32).reshape(len(observation), math.prod(observation.shape[1:]))
    each = np.broadcast_to(condition, (len(flat), condition.shape[-1]))
    return np.concatenate([flat, each], axis=1)
