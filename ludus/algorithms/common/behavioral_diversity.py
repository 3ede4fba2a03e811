"""Behavioural diversity: a reward, in addition to the game's, for acting unlike the nearest member of the population.

A policy π is trained on its return plus `weight` × its distance from the population,

    D(π) = min over members k of  E over episodes of π [ Σ_t KL(π(·|s_t) ‖ π_k(·|s_t)) ]

(Yao et al. 2023, "Policy space diversity for non-transitive games", whose distance from the population's hull is taken
from the nearest member in practice; Liu et al. 2021, "Towards unifying behavioral and response diversity", measure it
otherwise). The KL divergence of a decision is the mean of log π(a|s) - log π_k(a|s) over the actions of π. So with that
as the reward of the decision, a policy gradient follows D: the gradient of π inside the logarithm is zero in the mean,
since probabilities sum to 1.

Members are evaluated in mode `explore`, mixed with the uniform policy over legal actions: a deterministic member would
be infinitely far from any other policy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import DiversityTargets
from ludus.core.errors import ScenarioError
from ludus.core.types import Array, Diversity, EnvSpec, PolicyRef
from ludus.policies.base import Policy
from ludus.policies.categorical import CategoricalPolicy, epsilon_mix, full_mask
from ludus.policies.registry import build_policy
from ludus.policies.specs import information_state_ids

Floats = NDArray[np.float64]


def diversity_targets(diversity: Diversity, policy: Callable[[PolicyRef], Policy]) -> DiversityTargets:
    """Return a task's `diversity` with the members' weights. policy: returns a frozen one."""
    members = [policy(ref) for ref in diversity.members]
    known = tuple((member.spec, member.weights()) for member in members)
    return DiversityTargets(known, weight=diversity.weight, smoothing=diversity.smoothing)


class Divergence:
    """Log-ratios of a learner's decisions, whose observations are ids of an enumeration, or rows. nats: mean log-ratio
    to the nearest member in the last rollout, an estimate of the KL divergence per decision."""

    def __init__(self, targets: DiversityTargets, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError for a member without action probabilities (with memory, say)."""
        self._weight, self._smoothing = targets.weight, targets.smoothing
        self._policies = [_categorical(build_policy(*policy)) for policy in targets.policies]
        self.nats = 0.0
        self._table: Floats | None = None  # [K, ids covered, A] logarithms
        if env.enumeration is not None:
            ids = information_state_ids(env.enumeration, seats)
            self._base = ids.start
            self._table = self._logs(np.arange(ids.start, ids.stop, dtype=np.int32), env, ids)

    def _logs(self, observation: Array, env: EnvSpec, ids: slice) -> Floats:
        enumeration = env.enumeration
        assert enumeration is not None
        mask = np.ascontiguousarray(enumeration.mask[ids])
        decoded = enumeration.observation[ids]
        return np.stack(
            [self._log(policy, observation if policy.takes_ids else decoded, mask) for policy in self._policies]
        )

    def _log(self, policy: CategoricalPolicy, observation: Array, mask: NDArray[np.bool_]) -> Floats:
        return log_member(policy.probabilities(observation, mask, mode="explore")[0], mask, smoothing=self._smoothing)

    def reward(
        self, observation: Array, mask: NDArray[np.bool_] | None, action: Array, logp: NDArray[np.float32]
    ) -> Floats:
        """Return the reward float64[n] of n decisions (rows of `Trajectories`), in scaled rewards."""
        if not len(action):
            return np.zeros(0)
        _, reward = nearest(log_ratios(logp, self._members(observation, mask, action)))
        self.nats = float(reward.mean())
        return self._weight * reward

    def _members(self, observation: Array, mask: NDArray[np.bool_] | None, action: Array) -> Floats:
        """Return the members' log-probabilities of the actions, float64[K, n]."""
        if self._table is not None:
            return self._table[:, observation - self._base, action]
        rows = np.arange(len(action))
        legal = [full_mask(mask, len(action), policy.actions) for policy in self._policies]
        return np.stack(
            [self._log(p, observation, m)[rows, action] for p, m in zip(self._policies, legal, strict=True)]
        )


def log_member(probs: Floats, mask: NDArray[np.bool_], *, smoothing: float) -> Floats:
    """Return log((1 - smoothing) probs + smoothing × uniform over legal actions), float64[n, A]; 0 where illegal."""
    mixed = epsilon_mix(probs, mask, smoothing)
    return np.log(np.where(mask, mixed, 1.0))


def log_ratios(logp: NDArray[np.float32], members: Floats) -> Floats:
    """Return log π(a|s) - log π_k(a|s), float64[K, n], of logp float32[n] of the behaviour and members float64[K, n]."""
    return np.asarray(logp.astype(np.float64) - members)


def nearest(ratios: Floats) -> tuple[int, Floats]:
    """Return (index of the member with the least mean over decisions, its row) of float64[K, n]; the first of several."""
    member = int(np.argmin(ratios.mean(axis=1)))
    return member, ratios[member]


def _categorical(policy: object) -> CategoricalPolicy:
    if isinstance(policy, CategoricalPolicy) and policy.memory_shape is None:
        return policy
    raise ScenarioError(
        f"behavioural diversity compares action probabilities, and {type(policy).__name__} says none (it has memory, or acts otherwise). "
        "Leave diversity out, or use response diversity."
    )
