"""Decisions played by a policy in Ludus and by its exported file: are they the same?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ludus.apps.export.network import Signature
from ludus.core import seeding
from ludus.core.types import Array
from ludus.envs.base import VectorEnv
from ludus.evaluation.policies import SampledPolicy
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec

Outputs: TypeAlias = Mapping[str, Array]
Run: TypeAlias = Callable[[Mapping[str, Array]], Outputs]
"""From inputs by name to outputs by name: an exported file, opened."""

CLEAR, CLOSE = 1e-4, 1e-5
"""How far the two best scores must lie apart for the actions to be equal; how far probabilities may differ otherwise."""
_LEAST = 1e-7  # of a uniform that becomes a normal number, as in policies


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a comparison came to.

    Attributes:
        decisions: That were compared.
        clear: Decisions whose two best actions lie apart, where the best one must be the same.
        different: Clear decisions with another best action.
        largest: Largest difference of a probability, or of a number of a box relative to its half width.
    """

    decisions: int
    clear: int
    different: int
    largest: float

    @property
    def is_equal(self) -> bool:
        """Whether the file plays as the policy does."""
        return not self.different and self.largest <= CLOSE


@dataclass(frozen=True, slots=True)
class Decisions:
    """Rows that a policy decided.

    Attributes:
        inputs: Of the exported policy, by name.
        action: What the policy played, [n, …].
        logp: float32[n] of it, as the policy says.
        noise: float32[n, width] that it was drawn with.
        greedy: Whether it took the best action.
    """

    inputs: Mapping[str, Array]
    action: Array
    logp: NDArray[np.float32]
    noise: NDArray[np.float32]
    greedy: bool


def compare(signature: Signature, run: Run, played: Sequence[Decisions]) -> Agreement:
    """Compare a file with what the policy decided, in both its modes.

    Args:
        signature: Of the exported policy.
        run: The opened file.
        played: As `decisions` yields them.
    """
    total = clear = different = 0
    largest = 0.0
    for rows in played:
        out = run(rows.inputs)
        total += len(rows.action)
        if signature.choices:
            apart, wrong, most = _discrete(signature, out, rows)
        else:
            apart, wrong, most = _box(signature, out, rows)
        clear, different, largest = clear + apart, different + wrong, max(largest, most)
    return Agreement(total, clear, different, largest)


def _discrete(signature: Signature, out: Outputs, rows: Decisions) -> tuple[int, int, float]:
    """Return (clear decisions, those with another best action, the largest difference of a probability)."""
    n = len(rows.action)
    action = rows.action.reshape(n, -1)
    ends = np.cumsum(signature.choices)[:-1]
    scores = np.split(np.asarray(out["scores"], np.float64), ends, axis=1)
    chances = np.split(np.asarray(out["probabilities"], np.float64), ends, axis=1)
    apart = wrong = 0
    product = np.ones(n)
    for k, (score, chance) in enumerate(zip(scores, chances, strict=True)):
        product *= chance[np.arange(n), action[:, k]]
        if rows.greedy:
            best = np.sort(score, axis=1)[:, ::-1]
            is_clear = best[:, 0] - best[:, 1] > CLEAR if score.shape[1] > 1 else np.ones(n, np.bool_)
            apart += int(is_clear.sum())
            wrong += int((is_clear & (score.argmax(axis=1) != action[:, k])).sum())
    if rows.greedy:
        return apart, wrong, 0.0
    return 0, 0, float(np.abs(product - np.exp(np.asarray(rows.logp, np.float64))).max(initial=0.0))


def _box(signature: Signature, out: Outputs, rows: Decisions) -> tuple[int, int, float]:
    """Return (decisions, 0, the largest difference of a number, relative to the box's half width)."""
    box = {name: np.array(signature.box[name], np.float64) for name in ("middle", "half")}
    low, high = (
        np.array([end if value is None else value for value in signature.box[name]])
        for name, end in (("low", -np.inf), ("high", np.inf))
    )
    number = np.asarray(out["mean"], np.float64)
    if rows.greedy:
        expected = np.asarray(out["action"], np.float64).reshape(len(number), -1)
    else:
        number = number + out["std"] * ndtri(np.maximum(rows.noise[:, -number.shape[1] :], _LEAST, dtype=np.float64))
        number = np.tanh(number) if signature.kind == "tanh" else number
        expected = np.clip(box["middle"] + box["half"] * number, low, high)
    difference = np.abs(expected - rows.action.reshape(len(number), -1)) / np.maximum(box["half"], 1e-6)
    return len(number), 0, float(difference.max(initial=0.0))


# --------------------------------------------------------------------------------------------------------------------
# What is compared.


def decisions(
    policies: Sequence[SampledPolicy], signature: Signature, env: VectorEnv, *, count: int, seed: int
) -> Iterator[Decisions]:
    """Yield what the policies decide in an environment, in turn, member by member and in each of its modes.

    The player's own decisions alternate with random legal ones, so that states are met which it would not go to.

    Args:
        policies: Of the mixture.
        signature: Of the exported policy.
        env: A vector of the game, which is stepped.
        count: Of decisions, about, in all.
        seed: Of episodes and noise.
    """
    plays = _plays(policies)
    for k, mode in plays:
        decided = 0
        for rows in _episodes(policies[k].policy, mode, k, signature, env, seeding.key(seed, "export", k, mode)):
            yield rows
            decided += len(rows.action)
            if decided * len(plays) >= count:
                break


def random_decisions(
    policies: Sequence[SampledPolicy], signature: Signature, *, count: int, seed: int
) -> Iterator[Decisions]:
    """Yield what the policies decide on random observations, masks and memories, where no environment is known.

    Args:
        policies: Of the mixture.
        signature: Of the exported policy.
        count: Of decisions, about, in all.
        seed: Of them.
    """
    plays = _plays(policies)
    rows = -(-count // len(plays))
    for k, mode in plays:
        rng = np.random.default_rng(seeding.key(seed, "export", k, mode))
        policy = policies[k].policy
        observation = rng.normal(size=(rows, *signature.observation)).astype(np.float32)
        agents = int(policy.spec.config.get("agents", policy.spec.config.get("individual", 1)))
        if agents > 1:  # whose one-hot ids are the end of observations
            observation.reshape(rows, -1)[:, -agents:] = np.eye(agents, dtype=np.float32)[rng.integers(0, agents, rows)]
        mask = rng.random((rows, sum(signature.choices))) < 0.7
        begin = 0
        for choices in signature.choices:
            mask[np.arange(rows), begin + rng.integers(0, choices, rows)] = True
            begin += choices
        own = policy.memory_shape[0] if policy.memory_shape is not None else 0
        memory = np.zeros((rows, signature.memory), np.float32)
        memory[:, :own] = np.tanh(rng.normal(size=(rows, own)))
        noise = rng.random((rows, policy.noise_width), np.float32)
        act = policy.act(
            observation, mask if signature.choices else None, memory[:, :own].copy() if own else None, noise, mode=mode
        )
        yield Decisions(
            _inputs(signature, observation, mask, memory, k), act.action, act.logp, noise, _is_best(policy, mode)
        )


def _is_best(policy: Policy, mode: str) -> bool:
    """Whether a policy takes the best action in a mode; of a greedy chooser's members each may explore."""
    return mode == "greedy" and policy.spec.kind != "choice"


def _plays(policies: Sequence[SampledPolicy]) -> list[tuple[int, str]]:
    """Return the members with the modes that are compared: what explores is asked for its best action, too, where it has one."""
    return [
        (k, mode)
        for k, one in enumerate(policies)
        for mode in dict.fromkeys((one.mode, "greedy"))
        if mode == one.mode or _is_best(one.policy, mode)
    ]


def _episodes(
    policy: Policy, mode: str, member: int, signature: Signature, env: VectorEnv, seed: Any
) -> Iterator[Decisions]:
    rng = np.random.default_rng(int(seed))
    spec, player = env.spec, signature.player
    others = [build_policy(random_spec(spec.agents_of(p)[0].action), {}) for p in range(spec.num_players)]
    agents = len(spec.agents_of(player))
    memory = np.zeros((env.num_envs * agents, signature.memory), np.float32)
    own = policy.memory_shape[0] if policy.memory_shape is not None else 0
    timestep = env.reset(rng.integers(0, 2**63, env.num_envs, np.uint64))
    while True:
        actions = []
        for p, due in enumerate(timestep.due):
            observation: Array = due.observation
            mask: Array | None = due.mask
            if spec.enumeration is not None:
                observation, mask = (
                    part[due.observation] for part in (spec.enumeration.observation, spec.enumeration.mask)
                )
            noise = rng.random((len(due.slot), others[p].noise_width), np.float32)
            random = others[p].act(observation, mask, None, noise).action
            if p != player or not len(due.slot):
                actions.append(random)
                continue
            memory[due.slot[due.first]] = 0.0
            noise = rng.random((len(due.slot), policy.noise_width), np.float32)
            before = memory[due.slot].copy()
            act = policy.act(
                due.observation if policy.takes_ids else observation,
                mask,
                before[:, :own] if own else None,
                noise,
                mode=mode,
            )
            if own:
                memory[due.slot, :own] = act.memory
            yield Decisions(
                _inputs(signature, observation, mask, before, member),
                act.action,
                act.logp,
                noise,
                _is_best(policy, mode),
            )
            mix = rng.random(len(due.slot)) < 0.5
            actions.append(np.where(mix.reshape(-1, *(1,) * (act.action.ndim - 1)), act.action, random))
        timestep = env.step(tuple(actions))


def _inputs(
    signature: Signature, observation: Array, mask: Array | None, memory: Array, member: int
) -> dict[str, Array]:
    n = len(observation)  # copies: a vector writes into the same buffers again
    values: dict[str, Array] = {
        "observation": np.array(observation, np.float32).reshape(n, *signature.observation),
        "mask": np.ones((n, sum(signature.choices)), np.bool_) if mask is None else np.array(mask, np.bool_),
        "memory": memory,
        "member": np.full(n, member, np.int64),
    }
    return {name: values[name] for name in signature.inputs}
