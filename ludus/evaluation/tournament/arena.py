"""Episodes of many profiles at once, each decided in advance: who sits where, and all of its luck.

    bind -> reset -> [ noise -> act: policies in batches, bots one by one -> step ]* -> returns

An episode depends on its own keys and players alone, not on the others that are played with it (up to the rounding of batches), so a
tournament that is cut into other pieces, or goes on with more entrants, plays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numba import njit
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import Array, Due, Enumeration, PolicyRef, Timestep
from ludus.envs.base import VectorEnv
from ludus.evaluation.bots import BotPool, BotStates, Named, Tell
from ludus.policies.base import Policy
from ludus.rollout.inference.local import LocalBank

_BOT_SEED = 2**31


@dataclass(frozen=True, slots=True)
class ArenaPlayer:
    """Who sits in a seat: a policy in one of its modes, or a bot."""

    name: str
    policy: Policy | None = None
    mode: str = "explore"
    bot: Named | None = None


class Arena:
    """A vector of environments, and everybody who may play in it. It owns the vector."""

    def __init__(self, env: VectorEnv, players: Sequence[ArenaPlayer], *, tell: Tell | None = None) -> None:
        """tell: hears which of `players` is about to be asked, if it is a bot."""
        self.env, spec = env, env.spec
        self._players = tuple(players)
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._bank = LocalBank(spec, env.num_envs)
        refs = [PolicyRef(0, str(k), mode=player.mode) for k, player in enumerate(players)]
        policies = [(ref, p.policy) for ref, p in zip(refs, players, strict=True) if p.policy is not None]
        self._bank.load(policies)
        row = np.cumsum([player.policy is not None for player in players]) - 1
        self._row = np.array([k if p.policy is not None else -1 for k, p in zip(row, players, strict=True)], np.int32)
        bots = [(k, player.bot) for k, player in enumerate(players) if player.bot is not None]
        self._cast_of = {k: number for number, (k, _) in enumerate(bots)}
        hear = None if tell is None else _translated(tell, [k for k, _ in bots])
        self._cast = BotPool(spec, [bot for _, bot in bots], hear)
        self._states = BotStates(spec) if any(self._cast.by_state) else None
        self._key = np.zeros(env.num_envs, np.uint64)
        self._count = np.zeros(env.num_envs, np.int64)

    def play(self, seats: NDArray[np.int32], luck: NDArray[np.uint64], own: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Play T episodes: their returns float64[T, P].

        seats: int32[T, P], who plays, by place among the players. luck: uint64[T], the environment's seeds. own: uint64[T], keys of the
        players' chance. Raises what environments and policies raise; PolicyError, with its name, for a bot that raises or makes an illegal
        move.
        """
        out = np.empty((len(seats), self.env.spec.num_players))
        for first in range(0, len(seats), self.env.num_envs):
            part = slice(first, first + self.env.num_envs)
            out[part] = self._round(seats[part], luck[part], own[part])
        return out

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    # ------------------------------------------------------------------------------------------------

    def _round(
        self, seats: NDArray[np.int32], luck: NDArray[np.uint64], own: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        """One episode in each of the first environments."""
        n, envs = len(seats), self.env.num_envs
        seeds, quota = np.zeros(envs, np.uint64), np.zeros(envs, np.int64)
        seeds[:n], quota[:n] = luck, 1
        self._key[:n], self._count[:n] = own, 0
        bots = self._seat(seats)
        timestep = self.env.reset(seeds, episodes=1 if n == envs else quota)
        self._begin(seats, bots, seeds, own)
        returns = np.full((n, seats.shape[1]), np.nan)
        left = n - _take(timestep, returns)
        while left:
            if not any(len(due.slot) for due in timestep.due):
                raise EnvError(f"{self.env.spec.id} lists no decision as due before its episodes are over.")
            actions = tuple(self._act(p, due, bots[p]) for p, due in enumerate(timestep.due))
            if self._states is not None:
                self._states.step(timestep.due, actions)
            timestep = self.env.step(actions)
            left -= _take(timestep, returns)
        return returns

    def _seat(self, seats: NDArray[np.int32]) -> list[NDArray[np.int32] | None]:
        """Bind the policies. Per player int32[n], the bot that plays in each environment (-1: a policy); None if there is none."""
        self._bank.release()
        bots: list[NDArray[np.int32] | None] = []
        for p, agents in enumerate(self._agents):
            rows = self._row[seats[:, p]]
            there = np.flatnonzero(rows >= 0).astype(np.int32)
            if len(there):
                slots = there if agents == 1 else (there[:, None] * agents + np.arange(agents, dtype=np.int32)).ravel()
                self._bank.bind(p, slots.astype(np.int32), np.repeat(rows[there], agents))
            some = None
            if len(there) < len(seats):
                some = np.array([self._cast_of.get(k, -1) for k in seats[:, p].tolist()], np.int32)
            bots.append(some)
        return bots

    def _begin(
        self,
        seats: NDArray[np.int32],
        bots: Sequence[NDArray[np.int32] | None],
        seeds: NDArray[np.uint64],
        own: NDArray[np.uint64],
    ) -> None:
        """Tell the bots that their episodes begin."""
        watched: set[int] = set()
        for p, some in enumerate(bots):
            if some is None:
                continue
            for e in np.flatnonzero(some >= 0).tolist():
                bot = int(some[e])
                if self._cast.by_state[bot]:
                    watched.add(e)
                for k in range(self._agents[p]):
                    slot = e * self._agents[p] + k
                    self._cast.restart(bot, p, slot, seeding.key(int(own[e]), "bot", p, k) % _BOT_SEED)
        if self._states is not None:
            self._states.reset(sorted(watched), seeds)

    def _act(self, player: int, due: Due, bots: NDArray[np.int32] | None) -> Array:
        if not len(due.slot):
            return self._empty(player)
        environment = due.slot if self._agents[player] == 1 else due.slot // self._agents[player]
        noise = np.empty((len(due.slot), self._bank.noise_width), np.float32)
        _fill(environment, self._key, self._count, noise)
        if bots is None:
            return self._bank.act(player, due, noise).action
        asked = bots[environment]
        parts: list[tuple[NDArray[np.int64], Array]] = []
        rest = np.flatnonzero(asked < 0)
        if len(rest):
            parts.append((rest, self._bank.act(player, _rows(due, rest), noise[rest]).action))
        rows = np.flatnonzero(asked >= 0)
        if len(rows):
            answers = [self._ask(player, due, i, int(environment[i]), int(asked[i])) for i in rows.tolist()]
            parts.append((rows, np.stack(answers)))
        shape, dtype = parts[0][1].shape[1:], np.result_type(*(action.dtype for _, action in parts))
        actions = np.empty((len(due.slot), *shape), dtype)
        for where, action in parts:
            actions[where] = action
        return actions

    def _ask(self, player: int, due: Due, row: int, environment: int, bot: int) -> Array:
        observation = np.array(due.observation[row])  # its own: the vector writes over what it gave
        mask = None if due.mask is None else due.mask[row].copy()
        enumeration: Enumeration | None = self.env.spec.enumeration
        if enumeration is not None:
            observation, mask = (
                enumeration.observation[int(observation)].copy(),
                enumeration.mask[int(observation)].copy(),
            )
        state = self._states[environment].clone() if self._states is not None and self._cast.by_state[bot] else None
        return self._cast.act(bot, player, int(due.slot[row]), observation=observation, mask=mask, state=state)

    def _empty(self, player: int) -> Array:
        """The actions of a player that has nothing to decide."""
        agents = self.env.spec.agents_of(player)
        space: Any = agents[0].action if agents else None
        real = isinstance(space, Box) and space.dtype.kind == "f"
        return np.empty((0, *(() if space is None else space.shape or ())), np.float32 if real else np.int32)


def _translated(tell: Tell, numbers: Sequence[int]) -> Callable[[int], None]:
    return lambda bot: tell(numbers[bot] if bot >= 0 else -1)


def _take(timestep: Timestep, returns: NDArray[np.float64]) -> int:
    """Note the returns of the episodes that ended; how many."""
    finished = timestep.finished
    returns[finished.environment] = finished.returns
    return len(finished.environment)


def _rows(due: Due, rows: NDArray[np.int64]) -> Due:
    mask = None if due.mask is None else due.mask[rows]
    return Due(due.slot[rows], due.observation[rows], mask, due.reward[rows], due.first[rows])


@njit(cache=True)
def _fill(environment, key, count, out):  # type: ignore[no-untyped-def]
    """out float32[n, width]: the next uniforms in [0, 1) of each row's episode."""
    for i in range(len(environment)):
        e = environment[i]
        for w in range(out.shape[1]):
            u = seeding.uniform(key[e], np.uint64(count[e]))
            out[i, w] = np.float32(int(u * 16777216.0)) / np.float32(16777216.0)  # 24 bits: rounding cannot give 1
            count[e] += 1
