"""Two policies as the modes of one: what a learner plays in most of its games, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy


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

    def _mode(self, mode: str) -> tuple[Policy, str]:
        if mode not in self.modes:
            raise PolicyError(
                f"policy of kind {self.spec.kind!r} has no mode {mode!r}; it has {', '.join(self.modes)}."
            )
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
        policy, inner = self._mode(mode)
        act = policy.act(observation, mask, memory, noise[:, : policy.noise_width], mode=inner)
        return Act(act.action, act.logp)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `Policy.tabulate`."""
        policy, inner = self._mode(mode)
        return policy.tabulate(enumeration, player, mode=inner)

    def weights(self) -> Weights:
        return joined({part: policy.weights() for part, policy in self._parts.items()})


class NFSPPolicy(TwoPolicies):
    """Kind `nfsp`: a best response, and the average of what it was."""

    parts = ("best_response", "average")
    modes = ("explore", "greedy", "best_response", "average")


class AveragedPolicy(TwoPolicies):
    """Kind `averaged`: a learner's newest policy, and a slow average of it."""

    parts = ("newest", "average")
    modes = ("explore", "greedy", "newest", "average")


def nfsp_spec(best_response: PolicySpec, average: PolicySpec) -> PolicySpec:
    """The spec of an `NFSPPolicy`."""
    return PolicySpec("nfsp", {"best_response": _entry(best_response), "average": _entry(average)})


def averaged_spec(spec: PolicySpec) -> PolicySpec:
    """The spec of an `AveragedPolicy` of two policies of `spec`."""
    return PolicySpec("averaged", {"newest": _entry(spec), "average": _entry(spec)})


def _entry(spec: PolicySpec) -> dict[str, Any]:
    return {"kind": spec.kind, "config": dict(spec.config)}


def spec_of(spec: PolicySpec, part: str) -> PolicySpec:
    """The spec of one part. Raises PolicyError where there is none."""
    found: Any = spec.config.get(part)
    if not isinstance(found, Mapping) or not isinstance(found.get("kind"), str):
        raise PolicyError(f"the config of a {spec.kind!r} policy has {part!r}: {{kind, config}}; given {found!r}.")
    return PolicySpec(found["kind"], dict(found.get("config", {})))


def part_of(weights: Weights, part: str) -> Weights:
    """The weights of one part, by its own names."""
    return {name[len(part) + 1 :]: array for name, array in weights.items() if name.startswith(part + "/")}


def joined(parts: Mapping[str, Weights]) -> Weights:
    """The weights of a policy whose parts have these."""
    return {f"{part}/{name}": array for part, weights in parts.items() for name, array in weights.items()}
