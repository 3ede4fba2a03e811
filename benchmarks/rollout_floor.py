"""Bare loops: the least that a rollout costs besides the environment and the policies, if it keeps what Ludus's rollouts promise.

Each plays one environment, with nothing in it that another one would need. It draws the noise of all decisions from one stream, and checks
every action, and every number or mask that the environment gives. It writes the learner's decisions into columns, pays each the rewards
until the next one, keeps final observations, and counts returns and lengths of episodes, each of which begins with a seed of its own (of
CartPole's vector: with one for all). It gives the decisions out by segment. It draws no opponents, replaces no environment after a fault,
and does not say where a promise was broken. Of PettingZoo it does not check that rewards are finite, that masks are 0 and 1, or that the
environment leaves the process's settings as they were: there the figure is a little too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.types import Array
from ludus.policies.base import Policy

GOES_ON, TERMINATED, TRUNCATED, BEGINS = 0, 1, 2, 3


class Due:
    """One player's decisions, the first n rows of slot int32[E], observation and mask (None: all actions are legal)."""

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: Any, actions: int) -> None:
        self.n = 0
        self.slot = np.zeros(num_envs, np.int32)
        self.observation = np.zeros((num_envs, *shape), dtype)
        self.mask = np.zeros((num_envs, actions), np.bool_) if actions else None


class Game(Protocol):
    """E environments. Of each step: due, by player; earned float64[P, E]; over uint8[E], GOES_ON, how an episode ended, or BEGINS in a step
    that did nothing else; final [E, *shape], the last observations of those that ended."""

    due: list[Due]
    earned: NDArray[np.float64]
    over: NDArray[np.uint8]
    final: Array

    def step(self, actions: Sequence[Array]) -> None:
        """Step. actions: of each player's due rows."""
        ...


@kernel
def _append(slot, row, open_row, time, column_slot, column_time):  # type: ignore[no-untyped-def]
    for i in range(len(slot)):
        open_row[slot[i]] = row + i
        column_slot[row + i], column_time[row + i] = slot[i], time[slot[i]]


@kernel
def _account(earned, over, open_row, time, returns, reward, end, closed, log, at):  # type: ignore[no-untyped-def]
    """Pay rewards and finish episodes. Returns how many of them ended, and in how many the learner's last decision closed: `closed`."""
    episodes, tails = 0, 0
    for e in range(len(over)):
        row = open_row[e]
        for p in range(len(earned)):
            returns[e, p] += earned[p, e]
        if row >= 0:
            reward[row] += earned[0, e]
        time[e] += over[e] != BEGINS
        if over[e] == GOES_ON or over[e] == BEGINS:
            continue
        if row >= 0:
            end[row], open_row[e], closed[tails] = over[e], -1, e
            tails += 1
        for p in range(len(earned)):
            log[at + episodes, p] = returns[e, p]
            returns[e, p] = 0.0
        log[at + episodes, len(earned)] = time[e]
        time[e] = 0
        episodes += 1
    return episodes, tails


class BareLoop:
    """Plays a game with one policy for each player, of which the first learns; `play` gives `decisions` of it."""

    def __init__(self, game: Game, policies: Sequence[Policy], decisions: int) -> None:
        self._game, self._policies, self._decisions = game, policies, decisions
        num_envs, size = len(game.over), decisions + len(game.over)
        self._rng = np.random.default_rng(0)
        first = game.due[0]
        self._noise = np.empty((len(policies) * num_envs, 1), np.float32)
        self._columns: dict[str, Array] = {
            "observation": np.empty((size, *first.observation.shape[1:]), first.observation.dtype),
            "action": np.empty(size, np.int64),
            "logp": np.empty(size, np.float32),
            "value": np.empty(size, np.float32),
        }
        if first.mask is not None:
            self._columns["mask"] = np.empty((size, first.mask.shape[1]), np.bool_)
        self._reward, self._end = np.zeros(size, np.float32), np.zeros(size, np.uint8)
        self._slot, self._time = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._tails, self._log = np.empty_like(self._columns["observation"]), np.empty((size, len(policies) + 1))
        self._open, self._clock = np.full(num_envs, -1, np.int64), np.zeros(num_envs, np.int64)
        self._returns, self._closed = np.zeros((num_envs, len(policies))), np.zeros(num_envs, np.int64)
        self.episodes = self._log[:0]
        """Of the last `play`, float64[n, P + 1]: returns, and the length."""

    def play(self) -> int:
        """Return how many decisions of all players were made."""
        game, rows, decisions, episodes, tails = self._game, 0, 0, 0, 0
        self._open.fill(-1)
        self._reward.fill(0)
        self._end.fill(0)
        while rows < self._decisions:
            actions: list[Array] = []
            for p, due in enumerate(game.due):
                n = due.n
                if not n:
                    actions.append(due.slot[:0])
                    continue
                noise, observation = self._noise[:n], due.observation[:n]
                self._rng.random(dtype=np.float32, out=noise)
                mask = None if due.mask is None else due.mask[:n]
                act = self._policies[p].act(observation, mask, None, noise)
                actions.append(act.action)
                decisions += n
                if p == 0:
                    columns, end = self._columns, rows + n
                    columns["observation"][rows:end] = observation
                    columns["action"][rows:end] = act.action
                    columns["logp"][rows:end] = act.logp
                    columns["value"][rows:end] = act.extras["value"]
                    if mask is not None:
                        columns["mask"][rows:end] = mask
                    _append(due.slot[:n], rows, self._open, self._clock, self._slot, self._time)
                    rows = end
            game.step(actions)
            over, closed = _account(
                game.earned, game.over, self._open, self._clock, self._returns, self._reward, self._end, self._closed,
                self._log, episodes,
            )  # fmt: skip
            episodes += over
            if closed:
                game.final.take(self._closed[:closed], 0, self._tails[tails : tails + closed], "clip")
                tails += closed
        order = np.argsort(self._slot[:rows], kind="stable")
        for column in (*self._columns.values(), self._reward, self._end, self._time):
            column.take(order, axis=0)
        self._tails[:tails].copy()
        self.episodes = self._log[:episodes].copy()
        return decisions


def _refuse() -> None:
    raise ValueError(
        "a promise was broken: an illegal action, a number that is not finite, or a mask that allows nothing"
    )


# --------------------------------------------------------------------------------------------------------------------
# CartPole, a vector of Gymnasium's: what has ended rests for a step.


@kernel
def _gather(observation, reward, terminated, truncated, over, earned, slot, rows):  # type: ignore[no-untyped-def]
    """Note what a step means; over: as it was before. Returns how many are due, or -1 for a number that is not finite."""
    n = 0
    for e in range(len(over)):
        if over[e] == TERMINATED or over[e] == TRUNCATED:
            over[e], earned[0, e] = BEGINS, 0.0
        else:
            over[e], earned[0, e] = TERMINATED if terminated[e] else TRUNCATED if truncated[e] else GOES_ON, reward[e]
        if not np.isfinite(earned[0, e]):
            return -1
        for j in range(observation.shape[1]):
            if not np.isfinite(observation[e, j]):
                return -1
            rows[n, j] = observation[e, j]
        if over[e] == GOES_ON or over[e] == BEGINS:
            slot[n] = e
            n += 1
    return n


@kernel
def _spread(actions, slot, count, dense):  # type: ignore[no-untyped-def]
    for i in range(len(actions)):
        if actions[i] < 0 or actions[i] >= count:
            return False
        dense[slot[i]] = actions[i]
    return True


class CartPole:
    """`Game` of Gymnasium's vector."""

    def __init__(self, num_envs: int) -> None:
        self._vector: Any = gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")
        self.due = [Due(num_envs, (4,), np.float32, 0)]
        self.earned, self.over = np.zeros((1, num_envs)), np.zeros(num_envs, np.uint8)
        self.final, _ = self._vector.reset(seed=0)
        self._dense = np.zeros(num_envs, np.int64)
        self.due[0].n, self.due[0].slot[:], self.due[0].observation[:] = num_envs, np.arange(num_envs), self.final

    def step(self, actions: Sequence[Array]) -> None:
        due = self.due[0]
        if not _spread(actions[0], due.slot[: due.n], 2, self._dense):
            _refuse()
        self.final, reward, terminated, truncated, _ = self._vector.step(self._dense)
        due.n = _gather(self.final, reward, terminated, truncated, self.over, self.earned, due.slot, due.observation)
        if due.n < 0:
            _refuse()


# --------------------------------------------------------------------------------------------------------------------
# connect_four of OpenSpiel: states that are asked one by one.


@kernel
def _moves(actions, slot, mask, moves):  # type: ignore[no-untyped-def]
    for i in range(len(actions)):
        if actions[i] < 0 or actions[i] >= mask.shape[1] or not mask[i, actions[i]]:
            return False
        moves[slot[i]] = actions[i]
    return True


@kernel
def _mark(who, legal, counts, slots, masks, row):  # type: ignore[no-untyped-def]
    """Lay the decisions of E environments out by player. slots int32[2, E], masks bool[2, E, A]. Returns how many are the first one's."""
    n, begin = np.zeros(2, np.int64), 0
    for e in range(len(who)):
        p = who[e]
        row[e] = n[p]
        slots[p, n[p]] = e
        for a in range(masks.shape[2]):
            masks[p, n[p], a] = False
        for k in range(begin, begin + counts[e]):
            masks[p, n[p], legal[k]] = True
        n[p] += 1
        begin += counts[e]
    return n[0]


class ConnectFour:
    """`Game` of OpenSpiel's states, by the calls that `benchmarks.rollout_openspiel.calls` times."""

    def __init__(self, num_envs: int) -> None:
        import pyspiel

        self._state: Any = pyspiel.State
        self._game: Any = pyspiel.load_game("connect_four")
        seen = pyspiel.IIGObservationType(
            perfect_recall=False, public_info=True, private_info=pyspiel.PrivateInfoType.SINGLE_PLAYER
        )
        self._tensor: Any = pyspiel._Observation(self._game, self._game.make_observer(seen, {}))
        self._memory = memoryview(self._tensor).cast("B")
        size, actions = len(self._memory) // 4, self._game.num_distinct_actions()
        self._states = [self._game.new_initial_state() for _ in range(num_envs)]
        self._slots, self._masks = np.zeros((2, num_envs), np.int32), np.zeros((2, num_envs, actions), np.bool_)
        self._rows = np.zeros((2, num_envs, size), np.float32)
        self._into = [memoryview(rows).cast("B") for rows in self._rows]  # type: ignore[arg-type]
        self._at = [slice(4 * size * r, 4 * size * (r + 1)) for r in range(num_envs)]
        self.due = [Due(num_envs, (size,), np.float32, actions) for _ in range(2)]
        for due, slot, rows, mask in zip(self.due, self._slots, self._rows, self._masks, strict=True):
            due.slot, due.observation, due.mask = slot, rows, mask
        self.earned, self.over = np.zeros((2, num_envs)), np.zeros(num_envs, np.uint8)
        self.final = np.zeros((num_envs, size), np.float32)  # OpenSpiel has none
        self._to, self._row = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._look([0] * num_envs)

    def step(self, actions: Sequence[Array]) -> None:
        for due, chosen in zip(self.due, actions, strict=True):
            if not _moves(chosen, due.slot[: due.n], due.mask, self._to):
                _refuse()
        for _ in map(self._state.apply_action, self._states, self._to.tolist()):
            pass
        self.over.fill(GOES_ON)
        self.earned.fill(0)
        who = list(map(self._state.current_player, self._states))
        if min(who) < 0:
            for e, mover in enumerate(who):
                if mover < 0:
                    self.earned[:, e], self.over[e] = self._states[e].returns(), TERMINATED
                    self._states[e] = self._game.new_initial_state()
                    who[e] = 0
        self._look(who)

    def _look(self, who: list[int]) -> None:
        legal = list(map(self._state.legal_actions, self._states))
        flat: list[int] = []
        for actions in legal:
            flat += actions
        if not all(legal):
            _refuse()
        columns = (np.frombuffer(bytes(values), np.uint8) for values in (who, flat, map(len, legal)))
        first = int(_mark(*columns, self._slots, self._masks, self._row))
        self.due[0].n, self.due[1].n = first, len(who) - first
        for state, player, row in zip(self._states, who, self._row.tolist(), strict=True):
            self._tensor.set_from(state, player)
            self._into[player][self._at[row]] = self._memory


# --------------------------------------------------------------------------------------------------------------------
# connect_four of PettingZoo: Python objects.


class PettingZoo:
    """`Game` of PettingZoo's environments without their wrappers."""

    def __init__(self, num_envs: int) -> None:
        from pettingzoo.classic.connect_four.connect_four import raw_env

        self._envs: list[Any] = [raw_env() for _ in range(num_envs)]
        self.due = [Due(num_envs, (6, 7, 2), np.int8, 7) for _ in range(2)]
        self.earned, self.over = np.zeros((2, num_envs)), np.zeros(num_envs, np.uint8)
        self.final = np.zeros((num_envs, 6, 7, 2), np.int8)
        self._to, self._seed = np.zeros(num_envs, np.int64), 0
        for e in range(num_envs):
            self._begin(e)
            self._look(e)

    def step(self, actions: Sequence[Array]) -> None:
        for due, chosen in zip(self.due, actions, strict=True):
            if not _moves(chosen, due.slot[: due.n], due.mask, self._to):
                _refuse()
            due.n = 0
        self.over.fill(GOES_ON)
        self.earned.fill(0)
        for e, action in enumerate(self._to.tolist()):
            env = self._envs[e]
            env.step(action)
            for p, reward in enumerate(env.rewards.values()):
                if reward:
                    self.earned[p, e] += reward
            ends = *env.terminations.values(), *env.truncations.values()
            if not {bool, np.bool_}.issuperset(map(type, ends)):
                _refuse()
            if True in ends:
                self.over[e] = TERMINATED if True in ends[:2] else TRUNCATED
                self.final[e] = env.observe("player_0")["observation"]
                self._begin(e)
            self._look(e)

    def _begin(self, environment: int) -> None:
        self._seed += 1
        self._envs[environment].reset(seed=self._seed)

    def _look(self, environment: int) -> None:
        env = self._envs[environment]
        agent = env.agent_selection
        due, seen = self.due[env.possible_agents.index(agent)], env.observe(agent)
        observation, mask, n = seen["observation"], seen["action_mask"], due.n
        if observation.shape != (6, 7, 2) or observation.dtype != np.int8 or mask.shape != (7,) or not mask.any():
            _refuse()
        assert due.mask is not None
        due.slot[n], due.observation[n], due.mask[n], due.n = environment, observation, mask, n + 1


GAMES = {"cartpole": CartPole, "connect_four": ConnectFour, "pettingzoo": PettingZoo}
