"""Any OpenSpiel game that can be stepped, through its own API: turns, simultaneous moves, chance, 1 to n players.

actions -> checked, by place -> apply -> chance, drawn by key | end -> next episode -> tensors and legal actions, laid out by player

What OpenSpiel must be asked is asked by `map` over all states; everything else of a step is one compiled sweep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyspiel
from numba import njit
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import Array, Due, Ended, Finished, Timestep
from ludus.envs.openspiel.games import check_playable, describe, replay
from ludus.envs.openspiel.states import CHANCE, TERMINAL, Luck, OpenSpielGame, Tensor, moves_of, observer, resume

__all__ = ["Observation", "OpenSpielRows", "OpenSpielVectorEnv", "check_playable"]

# --------------------------------------------------------------------------------------------------------------------
# The array side of a step of OpenSpiel games: check and spread actions, lay decisions out by player, close
# episodes. Shapes: E environments, P players, A actions, n decisions of a step, R the most of them (E, or E × P
# with simultaneous moves). An environment's *place* is its index among those that still play.

Numbers = NDArray[np.integer]


class OpenDecisions(NamedTuple):
    """What an environment remembers of its episode: opened bool[E, P], who has had a decision; base float64[E, P], what each player
    had earned at its last decision; begun int64[E], the step in which the episode began."""

    opened: NDArray[np.bool_]
    base: NDArray[np.float64]
    begun: NDArray[np.int64]


class OpenSpielOut(NamedTuple):
    """Buffers of one timestep. Rows 0 … R-1 of the first six are decisions, grouped by player; player p's are
    start[p] … start[p + 1] - 1. Closed decisions have a line of their own for each player; closed int64[P] says how many."""

    slot: NDArray[np.int32]  # [R]
    place: NDArray[np.int32]  # [R]
    mask: NDArray[np.bool_]  # [R, A]
    reward: NDArray[np.float32]  # [R]
    first: NDArray[np.bool_]  # [R]
    row: NDArray[np.int64]  # [R]: of each decision in the order in which they were found
    start: NDArray[np.int64]  # [P + 1]
    closed: NDArray[np.int64]  # [P]
    closed_slot: NDArray[np.int32]  # [P, E]
    closed_reward: NDArray[np.float32]  # [P, E]
    length: NDArray[np.int32]  # [E]


def book(num_envs: int, players: int) -> OpenDecisions:
    """An empty book."""
    return OpenDecisions(
        np.zeros((num_envs, players), np.bool_), np.zeros((num_envs, players)), np.zeros(num_envs, np.int64)
    )


def make_out(num_envs: int, *, players: int, actions: int, rows: int) -> OpenSpielOut:
    """Empty buffers."""
    return OpenSpielOut(
        slot=np.zeros(rows, np.int32),
        place=np.zeros(rows, np.int32),
        mask=np.zeros((rows, actions), np.bool_),
        reward=np.zeros(rows, np.float32),
        first=np.zeros(rows, np.bool_),
        row=np.zeros(rows, np.int64),
        start=np.zeros(players + 1, np.int64),
        closed=np.zeros(players, np.int64),
        closed_slot=np.zeros((players, num_envs), np.int32),
        closed_reward=np.zeros((players, num_envs), np.float32),
        length=np.zeros(num_envs, np.int32),
    )


@njit(cache=True)
def take(
    given: Numbers, start: int, mask: NDArray[np.bool_], place: NDArray[np.int32], moves: NDArray[np.int64], column: int
) -> int:
    """Write one player's actions, those of the rows from `start` on, into moves[place, column]; the first row whose action is
    illegal, counted from `start`, or -1. Nothing is written from an illegal one on. mask, place: of the last `OpenSpielOut`."""
    for i in range(len(given)):
        action = np.int64(given[i])
        if action < 0 or action >= mask.shape[1] or not mask[start + i, action]:
            return i
        moves[place[start + i], column] = action
    return -1


@njit(cache=True)
def arrange(
    place: NDArray[np.int32],
    environment: NDArray[np.int32],
    who: Numbers,
    legal: Numbers,
    counts: Numbers,
    now: NDArray[np.float64],
    written: OpenDecisions,
    into: OpenSpielOut,
) -> int:
    """Lay n decisions out by player, in rising slot order. The first decision with a legal action that the game does not have, or -1.

    place int32[n], rising: of each decision's environment. environment int32[places]: its number. who[n]: the player. legal: all
    decisions' legal actions one after the other, counts[n] of each. now float64[places, P]: what the players have earned; of no length
    if the game pays at the end only.
    """
    actions = into.mask.shape[1]
    into.start[:] = 0
    for d in range(len(who)):
        into.start[who[d] + 1] += 1
    for p in range(len(into.start) - 1):
        into.start[p + 1] += into.start[p]
    free = into.start.copy()
    begin = 0
    for d in range(len(who)):
        p = who[d]
        e = environment[place[d]]
        r = free[p]
        free[p] += 1
        into.row[d] = r
        into.slot[r] = e
        into.place[r] = place[d]
        into.first[r] = not written.opened[e, p]
        into.mask[r] = False
        end = begin + counts[d]
        for k in range(begin, end):
            if legal[k] >= actions:
                return d
            into.mask[r, legal[k]] = True
        begin = end
        if len(now):
            total = now[place[d], p]
            into.reward[r] = total - written.base[e, p] if written.opened[e, p] else 0.0
            written.base[e, p] = total
        written.opened[e, p] = True
    return -1


@njit(cache=True)
def close(
    environment: NDArray[np.int32], returns: NDArray[np.float64], clock: int, written: OpenDecisions, into: OpenSpielOut
) -> None:
    """Close the open decisions of the environments whose episodes have ended, and forget them; `returns` is float64[k, P]."""
    into.closed[:] = 0
    for i in range(len(environment)):
        e = environment[i]
        for p in range(len(into.closed)):
            if written.opened[e, p]:
                j = into.closed[p]
                into.closed_slot[p, j] = e
                into.closed_reward[p, j] = returns[i, p] - written.base[e, p]
                into.closed[p] = j + 1
        into.length[i] = clock - written.begun[e]
        written.begun[e] = clock
        written.opened[e] = False
        written.base[e] = 0.0


# --------------------------------------------------------------------------------------------------------------------
# The buffers in which a vector of OpenSpiel games publishes its timesteps, two sides in turn.


class OpenSpielRows:
    """Lays out what E environments of one game publish; `book` is what they remember between timesteps.

    side: the one of two sets of buffers that holds the last timestep. Decisions are found by *place*, see `openspiel_kernels`.
    """

    def __init__(self, id: str, game: OpenSpielGame, tensor: Tensor, num_envs: int) -> None:
        players, actions, size = game.players, game.actions, tensor.size
        rows = num_envs * players if game.simultaneous else num_envs
        self.side = 0
        self.book = book(num_envs, players)
        self._id = id
        self._game = game
        self._tensor = tensor
        self._outs = [make_out(num_envs, players=players, actions=actions, rows=rows) for _ in range(2)]
        self._observation = np.zeros((2, rows, size), np.float32)
        self._bytes = [memoryview(side).cast("B") for side in self._observation]  # type: ignore[arg-type]
        self._row = [slice(4 * size * i, 4 * size * (i + 1)) for i in range(rows)]
        self._moves = np.zeros((num_envs, players if game.simultaneous else 1), np.int64)
        self._column = _bytes if actions < 256 else _integers
        self._nothing = np.empty((0, players))
        self._final = np.zeros((num_envs, size), np.float32)
        self._true = np.ones(num_envs, np.bool_)
        self._allowed = np.ones((num_envs, actions), np.bool_)

    def forget(self) -> None:
        """Forget all episodes, before new ones begin."""
        for column in self.book:
            column.fill(0)

    def take(self, actions: tuple[Array, ...], due: tuple[Due, ...], places: int) -> NDArray[np.int64]:
        """The actions for the last timestep's `due`, checked: int64[places, 1], or [places, P] if several may move at once, with
        INVALID_ACTION for those who do not. Raises EnvError if they do not fit, or one is illegal."""
        moves = self._moves[:places]
        simultaneous = self._game.simultaneous
        if simultaneous:
            moves.fill(pyspiel.INVALID_ACTION)
        out, row = self._outs[self.side], 0
        for p, rows in enumerate(due):
            n = len(rows.slot)
            given = np.asarray(actions[p])
            if given.shape != (n,) or (n and given.dtype.kind not in "iu"):
                raise EnvError(
                    f"player {p} was given actions of shape {given.shape} for {n} due decisions of {self._id}, of type "
                    f"{given.dtype}; one integer each."
                )
            wrong = take(given, row, out.mask, out.place, moves, p if simultaneous else 0) if n else -1
            if wrong >= 0:
                assert rows.mask is not None
                raise EnvError(
                    f"player {p} chose the illegal action {int(given[wrong])} in slot {int(rows.slot[wrong])} of {self._id}; "
                    f"legal: {np.flatnonzero(rows.mask[wrong]).tolist()}."
                )
            row += n
        return moves

    def close(
        self, ended: Sequence[int], returns: Sequence[Sequence[float]], clock: int
    ) -> tuple[tuple[Ended, ...], Finished]:
        """Close the episodes of the environments `ended`, rising, at step `clock`."""
        out = self._outs[self.side]
        environment, total = self.columns(ended, returns)
        close(environment, total, clock, self.book, out)
        closed = tuple(
            self.ended(out.closed_slot[p, :n], out.closed_reward[p, :n]) for p, n in enumerate(out.closed.tolist())
        )
        return closed, self.finished(environment, total, out.length[: len(ended)])

    def due(
        self,
        found: tuple[NDArray[np.int32], Sequence[int], Sequence[Any], Sequence[Sequence[int]]],
        environment: NDArray[np.int32],
        earned: Sequence[Sequence[float]] | None,
    ) -> tuple[Due, ...]:
        """The decisions that are due. found: place int32[≥ n], player, state and legal actions of each of n, by rising place.
        environment: number of the environment at each place. earned [places][P]: None if the game pays at the end only."""
        place, who, states, legal = found
        out, observation, into = self._outs[self.side], self._observation[self.side], self._bytes[self.side]
        flat: list[int] = []
        for actions in legal:
            flat += actions
        now = np.array(earned, np.float64) if earned else self._nothing
        column = self._column
        wrong = arrange(place, environment, _bytes(who), column(flat), column(map(len, legal)), now, self.book, out)
        if wrong >= 0:
            raise EnvError(
                f"{self._id} allows player {who[wrong]} the actions {legal[wrong]}; it has only {self._game.actions}."
            )
        set_from, memory, row = self._tensor.set_from, self._tensor.memory, self._row
        for state, player, r in zip(states, who, out.row.tolist(), strict=False):
            set_from(state, player)
            into[row[r]] = memory
        start = out.start.tolist()
        rows = [slice(begin, end) for begin, end in pairwise(start)]
        return tuple(Due(out.slot[r], observation[r], out.mask[r], out.reward[r], out.first[r]) for r in rows)

    def ended(self, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> Ended:
        """Terminated decisions, with zeros for the final observations that OpenSpiel does not have."""
        n = len(slot)
        return Ended(slot, reward, self._true[:n], self._final[:n], self._allowed[:n])

    def finished(
        self, environment: NDArray[np.int32], returns: NDArray[np.float64], length: NDArray[np.int32]
    ) -> Finished:
        """Terminated episodes."""
        return Finished(environment, returns, self._true[: len(environment)], length)

    def columns(
        self, ended: Sequence[int], returns: Sequence[Sequence[float]]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Lists of environments and of their returns as arrays, int32[k] and float64[k, P]."""
        return np.array(ended, np.int32), np.array(returns, np.float64).reshape(-1, self._game.players)


def _bytes(values: Iterable[int]) -> NDArray[np.uint8]:
    """Numbers below 256 as an array; three times as fast as NumPy's way."""
    return np.frombuffer(bytes(values), np.uint8)


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)


Observation: TypeAlias = Literal["auto", "information_state", "observation"]
_SNAPSHOT = "ludus openspiel 2"
# Unbound, for `map`: looking a method up on each state costs as much as half of a cheap call.
_apply, _mover = pyspiel.State.apply_action, pyspiel.State.current_player
_legal, _returns = pyspiel.State.legal_actions, pyspiel.State.returns


class OpenSpielVectorEnv:
    """`VectorEnv` over `num_envs` states of an OpenSpiel game (`pyspiel.Game` or its string).

    observation: "information_state" or "observation", OpenSpiel's tensors (flat); "auto": the first that the game has. Final observations
    are zeros: OpenSpiel defines no tensors at the end of a game, and termination does not bootstrap. Masks are always given.
    Rewards are differences of OpenSpiel's returns between a player's decisions, so whatever is paid in between is summed.
    Every end is a termination: where a game has a longest length, OpenSpiel makes it a rule of the game, with returns.
    openings: see `OpenSpielGame`; nobody decides these moves, and they are no part of an episode's length.
    Raises EnvError for games that cannot be stepped, or have no such tensor.
    """

    def __init__(self, game: Any, num_envs: int, *, observation: Observation = "auto", openings: int = 0) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        game = pyspiel.load_game(game) if isinstance(game, str) else game
        check_playable(game)
        tensor = observer(game, observation)
        self.spec = describe(game, size=tensor.size)
        self.num_envs = num_envs
        self._loaded = game
        self._game = OpenSpielGame(game, openings)
        self._rows = OpenSpielRows(self.spec.id, self._game, tensor, num_envs)
        self._places = np.arange(num_envs, dtype=np.int32)
        self._quota = [0] * num_envs
        self._idle = [True] * num_envs
        self._states: list[Any] = []
        self._luck: list[Luck] = []
        # Those that still play, by place: number of the environment, state, who is to move (negative: several).
        self._where: list[int] = []
        self._environment = self._places
        self._playing: list[Any] = []
        self._movers: list[int] = []
        self._clock = 0
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        quota = np.broadcast_to(np.asarray(-1 if episodes is None else episodes, np.int64), self.num_envs)
        self._quota = quota.tolist()
        self._idle = [n == 0 for n in self._quota]
        self._luck = [Luck(int(seed)) for seed in seeds]
        self._states = [self._game.new_state(luck) for luck in self._luck]
        self._rows.forget()
        self._clock = 0
        self._gather()
        self._movers = [self._open(e) for e in self._where]
        return self._publish([], [])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. An illegal action raises EnvError and leaves every game where it was."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        moves = self._rows.take(actions, self._last.due, len(self._playing))
        self._clock += 1
        done: list[None] = []  # `extend` keeps what came before an error, so its length says which environment raised
        try:
            if self._game.simultaneous:
                done.extend(map(_apply_either, self._playing, self._movers, moves.tolist()))
            else:
                done.extend(map(_apply, self._playing, moves[:, 0].tolist()))
        except pyspiel.SpielError as error:
            where = self._where[len(done)]
            raise EnvError(f"{self.spec.id} refused a move in environment {where}: {error}") from error
        self._movers = list(map(_mover, self._playing))
        ended, returns = self._settle() if min(self._movers, default=0) < 0 else ([], [])
        return self._publish(ended, returns)

    def snapshot(self) -> bytes | None:
        """Seeds, episode numbers and moves as JSON; chance is drawn again on restore, from the same keys."""
        if self._last is None:
            return None
        finished = self._last.finished
        document = {
            "format": _SNAPSHOT,
            "game": self.spec.id,
            "quota": self._quota,
            "idle": self._idle,
            "games": [
                [str(k.seed), k.episode, moves_of(s)[self._game.moves_before(k) :]]
                for k, s in zip(self._luck, self._states, strict=True)
            ],
            "ended": [[e.slot.tolist(), e.reward.tolist()] for e in self._last.ended],
            "finished": [column.tolist() for column in (finished.environment, finished.returns, finished.length)],
        }
        return json.dumps(document).encode()

    def restore(self, snapshot: bytes) -> Timestep:
        """See `VectorEnv.restore`. Raises EnvError if the snapshot is not one of an equal environment."""
        try:
            document = json.loads(snapshot)
            fits = document["format"] == _SNAPSHOT and document["game"] == self.spec.id
            luck = [Luck(int(seed), episode) for seed, episode, _ in document["games"]]
            resumed = [resume(self._game, k, row[2]) for k, row in zip(luck, document["games"], strict=True)]
        except (ValueError, KeyError, TypeError, IndexError, pyspiel.SpielError) as error:
            raise EnvError(f"a snapshot of {self.spec.id} cannot be read: {error}; was it cut or changed?") from error
        if not fits or len(luck) != self.num_envs:
            raise EnvError(
                f"a snapshot of {document['game']} with {len(luck)} environments was given to {self.spec.id} with "
                f"{self.num_envs}; restore into an equal environment."
            )
        self._quota, self._idle, self._luck = document["quota"], document["idle"], luck
        self._states = [r.state for r in resumed]
        self._clock = 0
        for e, r in enumerate(resumed):
            self._rows.book.opened[e], self._rows.book.base[e], self._rows.book.begun[e] = r.opened, r.base, -r.length
        self._gather()
        self._movers = [self._open(e) for e in self._where]
        timestep = self._publish([], [])
        ended = tuple(self._rows.ended(np.array(s, np.int32), np.array(r, np.float32)) for s, r in document["ended"])
        environment, returns, length = document["finished"]
        finished = self._rows.finished(*self._rows.columns(environment, returns), np.array(length, np.int32))
        self._last = Timestep(timestep.due, ended, finished)
        return self._last

    def render(self, environment: int) -> str:
        """The present state of one environment as OpenSpiel's text; of an idle one, the end of its last episode."""
        return str(self._state(environment))

    def transcript(self, environment: int) -> str:
        """The episode of one environment so far, or all of it if the environment is idle, as text; see `openspiel_replay.replay`."""
        state = self._state(environment)
        luck = self._luck[environment]
        return replay(self._loaded, moves_of(state), seed=luck.seed, episode=luck.episode)

    def close(self) -> None:
        """Forget all states."""
        self._states, self._playing, self._last = [], [], None

    # ------------------------------------------------------------------------------------------------

    def _state(self, environment: int) -> Any:
        if self._last is None or not 0 <= environment < self.num_envs:
            raise EnvError(
                f"environment {environment} cannot be shown; reset first, and give a number from 0 to {self.num_envs - 1}."
            )
        return self._states[environment]

    def _gather(self) -> None:
        """List those that play."""
        self._where = [e for e in range(self.num_envs) if not self._idle[e]]
        self._environment = np.array(self._where, np.int32)
        self._playing = [self._states[e] for e in self._where]

    def _open(self, environment: int) -> int:
        """Let chance move first; who is to move then."""
        mover = self._luck[environment].play(self._states[environment])
        if mover == TERMINAL:
            raise EnvError(
                f"{self.spec.id} ended in environment {environment} before anybody could move; it cannot be played."
            )
        return mover

    def _settle(self) -> tuple[list[int], list[list[float]]]:
        """Chance moves, episodes end and begin: environments that ended, and their returns."""
        movers, playing = self._movers, self._playing
        ended: list[int] = []
        returns: list[list[float]] = []
        for i, mover in enumerate(movers):
            if mover == CHANCE:
                mover = movers[i] = self._luck[self._where[i]].play(playing[i])
            if mover != TERMINAL:
                continue
            e = self._where[i]
            luck = self._luck[e]
            ended.append(e)
            returns.append(playing[i].returns())
            if luck.episode + 1 == self._quota[e]:
                self._idle[e] = True
                continue
            luck.renew()
            self._states[e] = playing[i] = self._game.new_state(luck)
            movers[i] = self._open(e)
        if any(self._idle[e] for e in ended):
            self._gather()
            self._movers = [mover for mover in movers if mover != TERMINAL]
        return ended, returns

    def _publish(self, ended: Sequence[int], returns: Sequence[Sequence[float]]) -> Timestep:
        """The timestep of all present states, in the buffers of the other side."""
        self._rows.side ^= 1
        closed, finished = self._rows.close(ended, returns, self._clock)
        earned = list(map(_returns, self._playing)) if self._game.pays_along else None
        self._last = Timestep(self._rows.due(self._find(), self._environment, earned), closed, finished)
        return self._last

    def _find(self) -> tuple[NDArray[np.int32], list[int], list[Any], list[list[int]]]:
        """What is due: place, player, state and legal actions of each decision, by rising place."""
        playing = self._playing
        if not self._game.simultaneous:
            return self._places, self._movers, playing, list(map(_legal, playing))
        found = []
        for i, (state, mover) in enumerate(zip(playing, self._movers, strict=True)):
            for p in (mover,) if mover >= 0 else range(self._game.players):
                actions = _legal(state, p)
                if actions:
                    found.append((i, p, state, actions))
        if not found:
            return self._places, [], [], []
        place, who, states, legal = (list(column) for column in zip(*found, strict=True))
        return np.array(place, np.int32), who, states, legal


def _apply_either(state: Any, mover: int, moves: list[int]) -> None:
    if mover >= 0:
        state.apply_action(moves[mover])
    else:
        state.apply_actions(moves)
