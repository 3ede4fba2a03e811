"""The base of compiled vectors: all that is not the rules of one game.

A game's file has its constants, the arrays of its state, and eight compiled functions (`Rules`). The base draws chance, begins and ends
episodes, lists decisions, and writes observations, masks and histories, in one compiled pass over the environments.
"""

from __future__ import annotations

import inspect
import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyspiel
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import inner, kernel
from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, FinishedEpisodes, Timestep
from ludus.envs.openspiel.games import describe, replay
from ludus.envs.openspiel.states import CHANCE, OPENING, TERMINAL, ChanceStream, OpenSpielGame, observer, resume
from ludus.envs.openspiel.vector import finished_in, require_equal, take, write_snapshot
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.sweep_rules import SweepRules
from ludus.envs.tree.walk import display_name

__all__ = [
    "CHANCE",
    "SIMULTANEOUS",
    "TERMINAL",
    "ArrayGame",
    "ArrayVectorEnv",
    "Rules",
    "draw",
    "rule",
    "thresholds",
    "vector_of",
]

SIMULTANEOUS = -2
_RECORDS = 4096  # number of lengths of which records are kept
_HOLD, _BEGIN = -2, -3  # in place of an action; -1 is OpenSpiel's INVALID_ACTION

# --------------------------------------------------------------------------------------------------------------------
# What a game is made of.


class Rules(NamedTuple):
    """The compiled functions of a game, each decorated with `inner` at the level of its module. `game`: the constants; `state`: a named
    tuple of arrays whose first axis is the environment; e: number of the environment; p: a player.

    Attributes:
        reset: (game, state, e): begin an episode.
        mover: (game, state, e) -> the player to move, or CHANCE, SIMULTANEOUS (all players), TERMINAL.
        chance: (game, state, e, u): make chance's move that the uniform u draws; see `draw`.
        play: (game, state, e, moves int64[columns]): make the mover's legal move moves[0], or of all players, moves[p].
        legal: (game, state, e, p, mask bool[A]): write every entry of the mask of a player to move.
        observation: (game, state, e, p, row float32[n]): write OpenSpiel's observation tensor; the row holds zeros.
        information_state: (game, state, e, p, row float32[n]): write its information-state tensor, where it has one.
        returns: (game, state, e, p) -> the player's return at the end.
    """

    reset: Callable[..., Any]
    mover: Callable[..., Any]
    chance: Callable[..., Any]
    play: Callable[..., Any]
    legal: Callable[..., Any]
    observation: Callable[..., Any]
    information_state: Callable[..., Any]
    returns: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ArrayGame:
    """A game with its parameters. rules: its functions. constants: a named tuple of numbers and arrays, `game` of the functions.
    new_state: (num_envs) -> `state` of the functions. sweep_rules: (whether policies see information states) -> the rules as exact
    sweeps read them, where there are such."""

    rules: Rules
    constants: NamedTuple
    new_state: Callable[[int], NamedTuple]
    sweep_rules: Callable[[bool], SweepRules] | None = None


def rule(function: Callable[..., Any]) -> Any:
    """`@rule`: what the pass calls is compiled into it. As a call it would hand over a hundred numbers, those of all arrays."""
    return inner(forceinline=True)(function)


@rule
def no_chance(game, state, e, u):  # type: ignore[no-untyped-def]
    """Do nothing: `chance` of a game without chance."""


@rule
def no_tensor(game, state, e, p, row):  # type: ignore[no-untyped-def]
    """Write nothing: in place of a tensor that the game does not have."""


def thresholds(n: int, width: int) -> NDArray[np.float64]:
    """Return float64[width]: up to which uniform each of n equally likely outcomes is drawn, in the sums of `ChanceStream.draw`."""
    sums = np.cumsum(np.full(width, 1.0 / n))
    sums[n - 1 :] = np.inf
    return sums


@rule
def draw(u, n, sums):  # type: ignore[no-untyped-def]
    """Return which of n equally likely outcomes the uniform u draws. sums: their `thresholds`."""
    k = int(u * n)
    while u >= sums[k]:
        k += 1
    while k > 0 and u < sums[k - 1]:
        k -= 1
    return k


# --------------------------------------------------------------------------------------------------------------------
# The compiled pass. E environments, P players, A actions, n numbers of an observation.


class Games(NamedTuple):
    """What the base knows of E environments.

    Attributes:
        idle: bool[E], whether the quota of episodes (-1: none) is played.
        seed, quota, episode: uint64[E], int64[E], int64[E].
        counter: uint64[E], chance events of the present episode.
        opened: bool[E, P], players with an open decision.
        length: int32[E], steps of the present episode.
        history: int32[E, L], its moves in OpenSpiel's order, without those of the opening; moves: int32[E], how many.
    """

    idle: NDArray[np.bool_]
    seed: NDArray[np.uint64]
    quota: NDArray[np.int64]
    episode: NDArray[np.int64]
    counter: NDArray[np.uint64]
    opened: NDArray[np.bool_]
    length: NDArray[np.int32]
    history: NDArray[np.int32]
    moves: NDArray[np.int32]


class Buffers(NamedTuple):
    """One timestep; the first rows[0, p] (due), rows[1, p] (ended) and rows[2, 0] (finished) rows hold."""

    rows: NDArray[np.int64]  # [3, P]
    slot: NDArray[np.int32]  # [P, E], as are the next three
    first: NDArray[np.bool_]
    ended_slot: NDArray[np.int32]
    ended_reward: NDArray[np.float32]
    observation: NDArray[np.float32]  # [P, E, n]
    mask: NDArray[np.bool_]  # [P, E, A]
    environment: NDArray[np.int32]  # [E]
    returns: NDArray[np.float64]  # [E, P]
    length: NDArray[np.int32]  # [E]


_intrinsic: Any = intrinsic  # mypy would hold callers to the signature by which it is typed


@_intrinsic
def _borrow(context: Any, values: Any) -> Any:  # noqa: ARG001  numba passes all by name
    """Return a named tuple with its arrays as they are for as long as the caller has them: references to them are not counted, which would
    take longer than a move."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        borrowed = arguments[0]
        for k, kind in enumerate(signature.args[0]):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, builder.extract_value(borrowed, k))
                array.meminfo = array.meminfo.type(None)
                array.parent = array.parent.type(None)
                borrowed = builder.insert_value(borrowed, array._getvalue(), k)
        return borrowed

    return values(values), generate


@cache
def compile_pass(rules: Rules) -> Any:
    """Return the compiled pass over all environments of a game with these rules. The file of kernels has it by the rules' source.

    (game, state, games, out, moves int64[E, columns], openings, full) -> the first environment whose episode ends before anyone moves, or
    -1. moves: are overwritten by those of openings. full: whether rows are information states, not observations.
    """
    reset, mover, chance, play, legal, observation, information_state, returns = rules
    source = _digest(rules)

    @kernel
    def advance(game, state, games, out, moves, openings, full):  # type: ignore[no-untyped-def]
        _ = source  # a part of the name by which it is cached
        game, state, games, out = _borrow(game), _borrow(state), _borrow(games), _borrow(out)
        out.rows[:] = 0
        for e in range(len(moves)):
            if games.idle[e] or moves[e, 0] == _HOLD:
                continue
            action = moves[e]
            begins = _record(games, e, action)
            goes_on, player = True, 0
            left, draws, opening = 0, 1, np.uint64(0)
            fresh = False
            while goes_on:
                if begins:
                    _restart(games, e)
                    reset(game, state, e)
                    left, opening = _length_of_opening(games, e, openings, fresh)
                else:
                    play(game, state, e, action)
                fresh |= begins
                player = _pass_chance(mover, chance, game, state, games, e)
                begins = player == TERMINAL
                if not begins:
                    goes_on = left > 0
                    draws, left = _choose(legal, game, state, games, out, e, player, action, opening, draws, left)
                elif not fresh:
                    goes_on = _finish(returns, game, state, games, out, e)
                elif draws == 1:
                    return e
                else:  # its opening ended it: it begins again, at its root
                    draws = 1
            if not games.idle[e]:
                _show(legal, observation, information_state, game, state, games, out, e, player, full)
        return -1

    return advance


def _digest(rules: Rules) -> int:
    """Return a number that changes with the source of a game's module, and of those of its package that it has rules from; without their
    source, with that of its functions."""
    try:
        return zlib.crc32("".join(map(inspect.getsource, _modules(sys.modules[rules.play.__module__]))).encode())
    except (KeyError, OSError, TypeError):
        return zlib.crc32(b"".join(function.__code__.co_code for function in rules))


def _modules(module: ModuleType) -> list[ModuleType]:
    """Return a module and those of its package that it has functions of, theirs included, in the order of their names."""
    package, modules, left = f"{module.__name__.rpartition('.')[0]}.", {module.__name__}, [module]
    while left:
        origins = {getattr(value, "__module__", None) or "" for value in vars(left.pop()).values() if callable(value)}
        new = {name for name in origins if package != "." and name.startswith(package)} - modules
        modules |= new
        left += [sys.modules[name] for name in new]
    return [sys.modules[name] for name in sorted(modules)]


@rule
def _record(games, e, action):  # type: ignore[no-untyped-def]
    """Note the moves of a step. Returns whether there are none, since an episode is to begin."""
    if action[0] == _BEGIN:
        return True
    games.length[e] += 1
    n = games.moves[e]
    for c in range(len(action)):
        games.history[e, n + c] = action[c]
    games.moves[e] = n + len(action)
    return False


@rule
def _key(games, e):  # type: ignore[no-untyped-def]
    """Return the key of chance in the present episode."""
    return episode_seed(games.seed[e], np.uint64(games.episode[e]))


@rule
def _length_of_opening(games, e, openings, again):  # type: ignore[no-untyped-def]
    """Return (how many moves are random, the key of what they draw), as `OpenSpielGame.new_state` has them. again: whether the episode has
    had its opening, which ended it."""
    if not openings or again:
        return 0, np.uint64(0)
    opening = seeding.mix(_key(games, e) ^ OPENING)
    return int(seeding.uniform(opening, np.uint64(0)) * (openings + 1)), opening


@rule
def _pass_chance(mover, chance, game, state, games, e):  # type: ignore[no-untyped-def]
    """Return who is to move after chance has moved."""
    player = mover(game, state, e)
    while player == CHANCE:
        chance(game, state, e, seeding.uniform(_key(games, e), games.counter[e]))
        games.counter[e] += np.uint64(1)
        player = mover(game, state, e)
    return player


@rule
def _movers(games, player):  # type: ignore[no-untyped-def]
    return (0, games.opened.shape[1]) if player == SIMULTANEOUS else (int(player), int(player) + 1)


@rule
def _choose(legal, game, state, games, out, e, player, action, opening, draws, left):  # type: ignore[no-untyped-def]
    """Choose a random move of the opening, if one is left. Returns (numbers draws for openings so far, how many moves are left then)."""
    if not left:
        return draws, left
    first, last = _movers(games, player)
    for p in range(first, last):
        mask = out.mask[p, len(games.idle) - 1]  # not in use yet: this environment has no row
        legal(game, state, e, p, mask)
        action[p - first] = _pick(mask, seeding.uniform(opening, np.uint64(draws)))
        draws += 1
    return draws, left - 1


@rule
def _pick(mask, u):  # type: ignore[no-untyped-def]
    """Return one of the legal actions, each as likely, by a uniform."""
    n = 0
    for legal in mask:
        n += legal
    k = int(u * n)
    for a in range(len(mask)):
        k -= mask[a]
        if k < 0:
            return a
    return -1


@rule
def _show(legal, observation, information_state, game, state, games, out, e, player, full):  # type: ignore[no-untyped-def]
    """List the decisions that are due, and write what their players see."""
    first, last = _movers(games, player)
    for p in range(first, last):
        n = out.rows[0, p]
        out.rows[0, p] = n + 1
        out.slot[p, n] = e
        out.first[p, n] = not games.opened[e, p]
        games.opened[e, p] = True
        legal(game, state, e, p, out.mask[p, n])
        row = out.observation[p, n]
        row[:] = 0
        if full:
            information_state(game, state, e, p, row)
        else:
            observation(game, state, e, p, row)


@rule
def _finish(returns, game, state, games, out, e):  # type: ignore[no-untyped-def]
    """Close an episode and its open decisions, and begin the next one or become idle. Returns whether it begins."""
    k = out.rows[2, 0]
    out.rows[2, 0] = k + 1
    out.environment[k] = e
    out.length[k] = games.length[e]
    for p in range(games.opened.shape[1]):
        gain = returns(game, state, e, p)
        out.returns[k, p] = gain
        if games.opened[e, p]:
            n = out.rows[1, p]
            out.rows[1, p] = n + 1
            out.ended_slot[p, n] = e
            out.ended_reward[p, n] = gain
    if games.episode[e] + 1 == games.quota[e]:
        games.idle[e] = True
        return False
    games.episode[e] += 1
    return True


@rule
def _restart(games, e):  # type: ignore[no-untyped-def]
    games.counter[e] = np.uint64(0)
    games.length[e] = 0
    games.moves[e] = 0
    for p in range(games.opened.shape[1]):
        games.opened[e, p] = False


# --------------------------------------------------------------------------------------------------------------------
# The vector.


class ArrayVectorEnv:
    """`VectorEnv` of an `ArrayGame`: the timesteps of `OpenSpielVectorEnv`, bit for bit, and its snapshots.

    Chance event c of episode k of environment e depends on (seeds[e], k, c) alone, and is draws as OpenSpiel's states draw it in Ludus. All
    rewards come at the end. Whatever wants a `pyspiel.State` builds it from the moves of the episode.

    Args:
        game: The `pyspiel.Game`.
        arrays: The game as arrays.
        num_envs, observation, openings: As in `OpenSpielVectorEnv`.
        text: How the game was named.
    """

    def __init__(
        self,
        game: Any,
        arrays: ArrayGame,
        num_envs: int,
        *,
        observation: str = "auto",
        openings: int = 0,
        text: str = "",
    ) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        self.spec = describe(game, display_name(game, text), size=observer(game, observation).size)
        self.num_envs, self.openings = num_envs, openings
        kind = game.get_type()
        self._full = observation != "observation" and kind.provides_information_state_tensor
        self.sweep_rules = None if arrays.sweep_rules is None else arrays.sweep_rules(self._full)
        self._loaded, self._openspiel = game, OpenSpielGame(game, openings)
        players, actions = self._openspiel.players, self._openspiel.actions
        columns = players if self._openspiel.simultaneous else 1
        self._advance, self._constants = compile_pass(arrays.rules), arrays.constants
        self._state = arrays.new_state(num_envs)
        self._games = _idle_games(num_envs, players, game.max_game_length() * columns)
        size = self.spec.agents[0].observation.shape
        assert size is not None
        self._outs = tuple(_buffers(num_envs, players, size[0], actions) for _ in range(2))
        self._records: tuple[dict[tuple[int, int, int], Any], ...] = ({}, {})
        self._current = 0
        self._moves = np.zeros((num_envs, columns), np.int64)
        self._place = np.arange(num_envs, dtype=np.int32)
        self._chosen = self._moves.copy()  # of `put`
        self._zero = _constant(np.zeros(num_envs, np.float32))
        self._true = _constant(np.ones(num_envs, np.bool_))
        self._final = _constant(np.zeros((num_envs, *size), np.float32))
        self._final_mask = _constant(np.ones((num_envs, actions), np.bool_))
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        if episodes is not None and np.any(np.asarray(episodes) < 0):
            raise EnvError(
                f"episodes={episodes} was given to a reset; numbers from 0 on are needed, or None for no end."
            )
        games = self._games
        for array in (games.episode, games.moves, games.length):
            array.fill(0)
        games.seed[:] = seeds
        games.quota[:] = -1 if episodes is None else episodes
        np.equal(games.quota, 0, out=games.idle)
        self._moves.fill(_BEGIN)
        return self._step()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. An illegal action raises EnvError and leaves every game where it was."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, rows in enumerate(self._last.due):
            n, mask = len(rows.slot), rows.mask
            player_actions = np.asarray(actions[p])
            if player_actions.shape != (n,) or (n and player_actions.dtype.kind not in "iu"):
                raise EnvError(
                    f"player {p} was given actions of shape {player_actions.shape} for {n} due decisions of {self.spec.id}, of type "
                    f"{player_actions.dtype}; one integer each."
                )
            if not n or mask is None:
                continue
            column = p if self._moves.shape[1] > 1 else 0
            wrong = take(player_actions, rows.slot, mask, self._place, self._moves, column)
            if wrong >= 0:
                raise EnvError(
                    f"player {p} chose the illegal action {int(player_actions[wrong])} in slot {int(rows.slot[wrong])} of {self.spec.id}; "
                    f"legal: {np.flatnonzero(mask[wrong]).tolist()}."
                )
        return self._step()

    # Some environments alone, while the others wait (`PartialVector` of ludus.apps.interfaces.partial_vectors).

    def begin(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Timestep:
        """Begin one episode in each of some environments, and list these alone.

        Args:
            environments: int64[n].
            seeds: uint64[n].
        """
        games = self._games
        for array in (games.episode, games.moves, games.length):
            array[environments] = 0
        games.seed[environments], games.quota[environments], games.idle[environments] = seeds, 1, False
        self._moves.fill(_HOLD)
        self._moves[environments] = _BEGIN
        return self._step()

    def put(self, player: int, slots: NDArray[np.int32], actions: Array) -> None:
        """Note legal actions [n] of a player in the environments int32[n], for `go`."""
        self._chosen[slots, player if self._chosen.shape[1] > 1 else 0] = actions

    def go(self, environments: NDArray[np.int64]) -> Timestep:
        """Step some environments, int64[n], by the actions of `put`, and list these alone."""
        self._moves.fill(_HOLD)
        self._moves[environments] = self._chosen[environments]
        return self._step()

    def snapshot(self) -> bytes | None:
        """Seeds, episode numbers and moves as JSON, which `OpenSpielVectorEnv` reads, too."""
        if self._last is None:
            return None
        games = self._games
        rows = [[str(games.seed[e]), int(games.episode[e]), self._history(e)] for e in range(self.num_envs)]
        return write_snapshot(self.spec.id, games.quota, games.idle, rows, self._last)

    def restore(self, snapshot: bytes) -> Timestep:
        """Restore as `VectorEnv.restore` describes. Raises EnvError if the snapshot is not one of an equal environment."""
        try:
            document = json.loads(snapshot)
            require_equal(document, self.spec.id, self.num_envs)
            rows = [(int(seed), int(episode), [int(a) for a in moves]) for seed, episode, moves in document["games"]]
            timestep = self._replay(rows, document["quota"], document["idle"])
            last = self._with_ends(timestep, document["ended"], finished_in(document, self._openspiel.players))
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise EnvError(f"a snapshot of {self.spec.id} cannot be read: {error}; was it cut or changed?") from error
        self._last = last
        return last

    def render(self, environment: int) -> str:
        """Return the present state of one environment as OpenSpiel's text; of an idle one, the end of its last episode."""
        return str(self.state(environment))

    def transcript(self, environment: int) -> str:
        """Return the episode of one environment so far, or all of it if the environment is idle, as text; see `games.replay`."""
        moves = [move.action for move in self.state(environment).full_history() if move.player >= 0]
        seed, episode = int(self._games.seed[environment]), int(self._games.episode[environment])
        return replay(self._loaded, moves, seed=seed, episode=episode)

    def state(self, environment: int) -> Any:
        """Return a `pyspiel.State` equal to the present state of one environment."""
        if self._last is None or not 0 <= environment < self.num_envs:
            raise EnvError(
                f"environment {environment} cannot be shown; reset first, and give a number from 0 to {self.num_envs - 1}."
            )
        chance = ChanceStream(int(self._games.seed[environment]), int(self._games.episode[environment]))
        return resume(self._openspiel, chance, self._history(environment)).state

    def close(self) -> None:
        """Forget the games."""
        self._last = None

    # ------------------------------------------------------------------------------------------------

    def _history(self, environment: int) -> list[int]:
        moves: list[int] = self._games.history[environment, : self._games.moves[environment]].tolist()
        return moves

    def _step(self) -> Timestep:
        """Make `self._moves`."""
        self._current = 1 - self._current
        out = self._outs[self._current]
        stuck = self._advance(self._constants, self._state, self._games, out, self._moves, self.openings, self._full)
        if stuck >= 0:
            raise EnvError(
                f"{self.spec.id} ended in environment {stuck} before a player could move; it cannot be played."
            )
        self._last = self._timestep(out)
        return self._last

    def _timestep(self, out: Buffers) -> Timestep:
        due_counts, end_counts, (k, *_) = out.rows.tolist()
        records = self._records[self._current]
        due = tuple(
            records.get((0, p, n)) or self._record((0, p, n), self._requests(out, p, n))
            for p, n in enumerate(due_counts)
        )
        ended = tuple(
            records.get((1, p, n))
            or self._record((1, p, n), self._closed(out.ended_slot[p, :n], out.ended_reward[p, :n]))
            for p, n in enumerate(end_counts)
        )
        finished = records.get((2, 0, k)) or self._record(
            (2, 0, k), FinishedEpisodes(out.environment[:k], out.returns[:k], self._true[:k], out.length[:k])
        )
        return Timestep(due, ended, finished)

    def _record(self, key: tuple[int, int, int], record: Any) -> Any:
        """Keep a record: those of one length are views of the same buffers, and are made once."""
        records = self._records[self._current]
        if len(records) < _RECORDS:
            records[key] = record
        return record

    def _requests(self, out: Buffers, p: int, n: int) -> ActionRequests:
        return ActionRequests(
            out.slot[p, :n], out.observation[p, :n], out.mask[p, :n], self._zero[:n], out.first[p, :n]
        )

    def _closed(self, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> ClosedDecisions:
        n = len(slot)
        return ClosedDecisions(slot, reward, self._true[:n], self._final[:n], self._final_mask[:n])

    def _replay(self, rows: list[tuple[int, int, list[int]]], quota: list[int], idle: list[bool]) -> Timestep:
        """Bring the environments to where these moves lead: rows: (seed, episode, moves) of each. Those with fewer moves begin later, so
        that all arrive in the last pass. Raises ValueError if moves do not fit."""
        games, width = self._games, self._moves.shape[1]
        games.seed[:], games.episode[:] = [row[0] for row in rows], [row[1] for row in rows]
        games.quota[:], games.idle[:] = quota, idle
        todo = [moves for _, _, moves in rows]
        for e, moves in enumerate(todo):
            if idle[e]:
                games.history[e, : len(moves)], games.moves[e] = moves, len(moves)
        steps = [0 if idle[e] else len(moves) // width for e, moves in enumerate(todo)]
        latest = max(steps)
        for t in count():
            self._moves.fill(_HOLD)
            for e in range(self.num_envs):
                if (done := t - (latest - steps[e])) >= 0:
                    self._moves[e] = todo[e][(done - 1) * width : done * width] if done else _BEGIN
            if t:
                self._check(self._last)
            timestep = self._step()
            if len(timestep.finished.environment):
                raise ValueError("there are moves after the end of an episode")
            if t == latest:
                return timestep
        raise AssertionError

    def _check(self, last: Timestep | None) -> None:
        """Raise ValueError unless `self._moves` are legal where decisions are due."""
        assert last is not None
        for p, due in enumerate(last.due):
            assert due.mask is not None
            actions = self._moves[due.slot, p if self._moves.shape[1] > 1 else 0]
            inside = (actions >= 0) & (actions < due.mask.shape[1])
            if not (inside & due.mask[np.arange(len(actions)), np.where(inside, actions, 0)]).all():
                raise ValueError("a move is illegal")

    def _with_ends(self, timestep: Timestep, ended: list[Any], over: FinishedEpisodes) -> Timestep:
        closed = tuple(self._closed(np.array(slot, np.int32), np.array(reward, np.float32)) for slot, reward in ended)
        return Timestep(timestep.due, closed, over)


def vector_of(arrays: Callable[[Any], ArrayGame | None]) -> Callable[..., ArrayVectorEnv | None]:
    """Return what an entry point of the group `ludus.openspiel_arrays` names: (pyspiel.Game, num_envs, *, observation, openings, text)
    -> the vector, or None for parameters that `arrays` does not cover."""

    def make(game: Any, num_envs: int, **options: Any) -> ArrayVectorEnv | None:
        kind = game.get_type()
        if kind.reward_model != pyspiel.GameType.RewardModel.TERMINAL or (description := arrays(game)) is None:
            return None
        return ArrayVectorEnv(game, description, num_envs, **options)

    return make


def _constant(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _idle_games(num_envs: int, players: int, longest: int) -> Games:
    return Games(
        idle=np.ones(num_envs, np.bool_),
        seed=np.zeros(num_envs, np.uint64),
        quota=np.zeros(num_envs, np.int64),
        episode=np.zeros(num_envs, np.int64),
        counter=np.zeros(num_envs, np.uint64),
        opened=np.zeros((num_envs, players), np.bool_),
        length=np.zeros(num_envs, np.int32),
        history=np.zeros((num_envs, longest), np.int32),
        moves=np.zeros(num_envs, np.int32),
    )


def _buffers(num_envs: int, players: int, size: int, actions: int) -> Buffers:
    shape = (players, num_envs)
    return Buffers(
        rows=np.zeros((3, players), np.int64),
        slot=np.zeros(shape, np.int32),
        first=np.zeros(shape, np.bool_),
        ended_slot=np.zeros(shape, np.int32),
        ended_reward=np.zeros(shape, np.float32),
        observation=np.zeros((*shape, size), np.float32),
        mask=np.zeros((*shape, actions), np.bool_),
        environment=np.zeros(num_envs, np.int32),
        returns=np.zeros((num_envs, players)),
        length=np.zeros(num_envs, np.int32),
    )
