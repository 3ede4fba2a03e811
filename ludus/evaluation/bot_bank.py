"""Bots among policies, for the rollout worker: a bank that evaluates policies together and asks bots one decision at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Act, Array, Due, PolicyRef, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import Wrapper
from ludus.evaluation.bots import BotPool, BotStates, NamedBot, Tell
from ludus.policies.base import Policy
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

_SEED_WIDTH = 2  # uniforms that a bot's seed is made of
_POLICY = -1


class BotBank:
    """`PolicyBank` of policies and bots, for evaluations in which each environment plays one episode.

    A slot's bot begins an episode at its first decision in it, with a seed from the uniforms of that decision. Index k of `refs` beyond
    those of the policies is the k-th bot.
    """

    def __init__(self, env: VectorEnv, bots: Mapping[PolicyRef, NamedBot], tell: Tell | None = None) -> None:
        """tell: hears which of the bots is about to be made or asked, by its place."""
        self._spec = env.spec
        self._policies = LocalBank(env.spec, env.num_envs)
        self._bots = tuple(bots)
        self._pool = BotPool(env.spec, list(bots.values()), tell)
        self._agents = [len(env.spec.agents_of(p)) for p in range(env.spec.num_players)]
        self._bot = [np.full(env.num_envs * agents, _POLICY, np.int32) for agents in self._agents]  # by slot
        self.states = BotStates(env.spec) if any(self._pool.by_state) else None
        self.refs: Sequence[PolicyRef] = self._bots
        self.recurrent = False
        self.noise_width = _SEED_WIDTH

    def load(self, policies: Sequence[tuple[PolicyRef, Policy]], *, extras: Sequence[str] = ()) -> None:
        """See `PolicyBank.load`."""
        self._policies.load(policies, extras=extras)
        self.refs = (*self._policies.refs, *self._bots)
        self.recurrent = self._policies.recurrent
        self.noise_width = max(self._policies.noise_width, _SEED_WIDTH if self._bots else 1)

    def release(self) -> None:
        """See `PolicyBank.release`."""
        self._policies.release()

    def bind(
        self, player: int, slots: NDArray[np.int32], policy: NDArray[np.int32], *, keep_memory: bool = False
    ) -> None:
        """See `PolicyBank.bind`."""
        first = len(self._policies.refs)
        self._bot[player][slots] = np.where(policy < first, _POLICY, policy - first)
        evaluated = policy < first
        if evaluated.any():
            self._policies.bind(player, slots[evaluated], policy[evaluated], keep_memory=keep_memory)

    def memory(self, player: int, slots: NDArray[np.int32], policy: int) -> NDArray[np.float32] | None:
        """See `PolicyBank.memory`: of a learner, and bots are not among those who meet one."""
        return self._policies.memory(player, slots, policy)

    def watched(self) -> list[int]:
        """The environments in which a bot plays by the state, as they are bound."""
        by_state = np.array([*self._pool.by_state, False])  # _POLICY is the last
        found: set[int] = set()
        for bots, agents in zip(self._bot, self._agents, strict=True):
            found.update((np.flatnonzero(by_state[bots]) // agents).tolist())
        return sorted(found)

    def act(self, player: int, due: Due, noise: NDArray[np.float32]) -> Act:
        """See `PolicyBank.act`. Raises PolicyError, with its name, for a bot that raises or makes an illegal move."""
        bots = self._bot[player][due.slot]
        own = noise[:, : self._policies.noise_width]
        if (bots == _POLICY).all():
            return self._policies.act(player, due, own)
        parts: list[tuple[NDArray[np.int64], Array]] = []
        evaluated = np.flatnonzero(bots == _POLICY)
        if len(evaluated):
            parts.append((evaluated, self._policies.act(player, _rows(due, evaluated), own[evaluated]).action))
        asked = np.flatnonzero(bots != _POLICY)
        parts.append((asked, np.stack([self._ask(player, due, i, int(bots[i]), noise[i]) for i in asked.tolist()])))
        shape, dtype = parts[0][1].shape[1:], np.result_type(*(action.dtype for _, action in parts))
        actions = np.empty((len(due.slot), *shape), dtype)
        for where, action in parts:
            actions[where] = action
        return Act(actions, np.zeros(len(due.slot), np.float32))

    def _ask(self, player: int, due: Due, row: int, bot: int, noise: NDArray[np.float32]) -> Array:
        slot = int(due.slot[row])
        if due.first[row]:
            self._pool.restart(bot, player, slot, (int(noise[0] * 2**16) << 15) + int(noise[1] * 2**15))
        observation = np.array(due.observation[row])  # its own: the vector writes over what it gave
        mask = None if due.mask is None else due.mask[row].copy()
        enumeration = self._spec.enumeration
        if enumeration is not None:
            observation, mask = (
                enumeration.observation[int(observation)].copy(),
                enumeration.mask[int(observation)].copy(),
            )
        state = None
        if self.states is not None and self._pool.by_state[bot]:
            state = self.states[slot // self._agents[player]].clone()
        return self._pool.act(bot, player, slot, observation=observation, mask=mask, state=state)


def bot_worker(env: VectorEnv, bots: Mapping[PolicyRef, NamedBot], tell: Tell | None = None) -> RolloutWorker:
    """A worker whose requests may name these bots, beside the policies that come with them. It owns `env`. Raises what making them
    raises."""
    bank = BotBank(env, bots, tell)
    return RolloutWorker(env if bank.states is None else _Followed(env, bank.states, bank.watched), bank)


class _Followed(Wrapper):
    """A vector whose OpenSpiel states are kept beside it, where a bot needs them."""

    def __init__(self, env: VectorEnv, states: BotStates, watched: Callable[[], Sequence[int]]) -> None:
        super().__init__(env, env.spec)
        self._states, self._watched = states, watched
        self._due: Sequence[Due] = ()

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        timestep = super().reset(seeds, episodes=episodes)
        self._states.reset(self._watched(), seeds)
        return timestep

    def _see(self, timestep: Timestep) -> Timestep:
        self._due = timestep.due
        return timestep

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        self._states.step(self._due, actions)
        return actions


def _rows(due: Due, rows: NDArray[np.int64]) -> Due:
    mask = None if due.mask is None else due.mask[rows]
    return Due(due.slot[rows], due.observation[rows], mask, due.reward[rows], due.first[rows])
