"""Vectors of games over a compiled tree: the fast `VectorEnv`."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import EnvError
from ludus.core.seeding import uniform
from ludus.core.types import ActionRequests, Array, ClosedDecisions, FinishedEpisodes, Timestep
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.tree_arrays import Arrays
from ludus.envs.tree.walk import CHANCE, TERMINAL

if TYPE_CHECKING:
    import torch

    from ludus.envs.device_vector import DeviceVectorEnv

__all__ = ["TreeVectorEnv"]

# --------------------------------------------------------------------------------------------------------------------
# Compiled stepping of many games together over the arrays of one tree. Rows are written in the pass that walks the tree,
# at 0.04 µs a decision: filling slots for a `Publisher`, and a second pass over them, would double that.

IDLE = -1

# Columns of Board.node
_CHILD, _INFO, _KIND, _SIZE = 0, 1, 2, 3


class Board(NamedTuple):
    """The arrays that kernels read.

    Attributes:
        node: int32[N, 4]: first child (row in `returns` at terminals), information state, player (or -1 chance, -4 terminal), and size
            (players moving simultaneously; number of children under chance).
        cumulative: float64[N].
        rank: int16[I, A].
        returns: float64[T, P].
        so_far: float64[N, P], or [0, P] if rewards come only at the end.
    """

    node: NDArray[np.int32]
    cumulative: NDArray[np.float64]
    rank: NDArray[np.int16]
    returns: NDArray[np.float64]
    so_far: NDArray[np.float64]  # [N, P], or [0, P] if rewards come only at its end


class Games(NamedTuple):
    """The state of E environments.

    Attributes:
        node: int32[E]; IDLE when the quota of episodes (-1: none) is played.
        seed: uint64[E]; quota and episode int64[E].
        key: uint64[E], with the counter the name of the next chance event's number.
        counter: uint64[E].
        opened: bool[E, P], players with an open decision.
        paid: float64[E, P], summed reward at each player's last decision.
        length: int32[E].
        landing: int32[E], scratch.
    """

    node: NDArray[np.int32]
    seed: NDArray[np.uint64]
    quota: NDArray[np.int64]
    episode: NDArray[np.int64]
    key: NDArray[np.uint64]
    counter: NDArray[np.uint64]
    opened: NDArray[np.bool_]  # [E, P]
    paid: NDArray[np.float64]  # [E, P]
    length: NDArray[np.int32]
    landing: NDArray[np.int32]  # scratch


class TreeTimestepBuffers(NamedTuple):
    """Buffers of one timestep; the first rows[0, p] (due), rows[1, p] (ended) and rows[2, 0] (finished) of them hold."""

    rows: NDArray[np.int64]  # [3, P]
    slot: NDArray[np.int32]  # [P, E], as are the next six
    observation: NDArray[np.int32]
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]
    ended_slot: NDArray[np.int32]
    ended_reward: NDArray[np.float32]
    environment: NDArray[np.int32]  # [E]
    returns: NDArray[np.float64]  # [E, P]
    length: NDArray[np.int32]  # [E]


def board(arrays: Arrays) -> Board:
    """Pack a tree for stepping."""
    nodes = arrays.nodes
    node = np.stack([nodes.child, nodes.info, nodes.player, nodes.width], axis=1).astype(np.int32)
    ends, chance = nodes.terminal >= 0, nodes.player == -1
    node[ends, _CHILD] = nodes.terminal[ends]
    node[chance, _SIZE] = nodes.degree[chance]
    players = arrays.returns.shape[1]
    so_far = np.zeros((0, players)) if arrays.so_far is None else arrays.so_far
    return Board(node, nodes.cumulative, arrays.rank, arrays.returns, so_far)


def games(environments: int, players: int) -> Games:
    """Return new, idle games."""
    shape = (environments, players)
    return Games(
        node=np.full(environments, IDLE, np.int32),
        seed=np.zeros(environments, np.uint64),
        quota=np.zeros(environments, np.int64),
        episode=np.zeros(environments, np.int64),
        key=np.zeros(environments, np.uint64),
        counter=np.zeros(environments, np.uint64),
        opened=np.zeros(shape, np.bool_),
        paid=np.zeros(shape, np.float64),
        length=np.zeros(environments, np.int32),
        landing=np.zeros(environments, np.int32),
    )


def make_buffers(environments: int, players: int) -> TreeTimestepBuffers:
    """Return empty buffers for one timestep."""
    shape = (players, environments)
    return TreeTimestepBuffers(
        rows=np.zeros((3, players), np.int64),
        slot=np.zeros(shape, np.int32),
        observation=np.zeros(shape, np.int32),
        reward=np.zeros(shape, np.float32),
        first=np.zeros(shape, np.bool_),
        ended_slot=np.zeros(shape, np.int32),
        ended_reward=np.zeros(shape, np.float32),
        environment=np.zeros(environments, np.int32),
        returns=np.zeros((environments, players), np.float64),
        length=np.zeros(environments, np.int32),
    )


@inner
def _past_chance(board, games, e, x):  # type: ignore[no-untyped-def]
    """Return the first node from x on that is no chance node; every chance event takes one number of the episode's stream."""
    node, cumulative = board.node, board.cumulative
    while node[x, _KIND] == -1:
        u = uniform(games.key[e], games.counter[e])
        games.counter[e] += np.uint64(1)
        last = node[x, _CHILD] + node[x, _SIZE] - 1
        x = node[x, _CHILD]
        while x < last and u >= cumulative[x]:
            x += 1
    return x


@inner
def _begin(board, games, e):  # type: ignore[no-untyped-def]
    """Start the episode games.episode[e]. Returns its first node with a decision."""
    games.key[e] = episode_seed(games.seed[e], np.uint64(games.episode[e]))
    games.counter[e] = np.uint64(0)
    games.length[e] = 0
    games.opened[e] = False
    games.paid[e] = 0.0
    return _past_chance(board, games, e, np.int64(0))


@inner
def _ask(board, games, out, e, x):  # type: ignore[no-untyped-def]
    """List the decisions that are due at node x."""
    node, so_far = board.node, board.so_far
    y = x
    for _ in range(node[x, _SIZE]):
        p = node[y, _KIND]
        n = out.rows[0, p]
        out.rows[0, p] = n + 1
        out.slot[p, n] = e
        out.observation[p, n] = node[y, _INFO]
        first = not games.opened[e, p]
        out.first[p, n] = first
        games.opened[e, p] = True
        out.reward[p, n] = 0.0
        if len(so_far):
            if not first:
                out.reward[p, n] = so_far[x, p] - games.paid[e, p]
            games.paid[e, p] = so_far[x, p]
        y = node[y, _CHILD]


@inner
def _finish(board, games, out, e, x):  # type: ignore[no-untyped-def]
    """Close the episode of environment e at terminal x: every open decision, and the episode itself."""
    row = board.node[x, _CHILD]
    k = out.rows[2, 0]
    out.rows[2, 0] = k + 1
    out.environment[k] = e
    out.length[k] = games.length[e]
    for p in range(board.returns.shape[1]):
        gain = board.returns[row, p]
        out.returns[k, p] = gain
        if games.opened[e, p]:
            n = out.rows[1, p]
            out.rows[1, p] = n + 1
            out.ended_slot[p, n] = e
            out.ended_reward[p, n] = gain - games.paid[e, p]


@kernel
def start(board, games, out):  # type: ignore[no-untyped-def]
    """Begin episode 0 of every environment that has any to play."""
    out.rows[:] = 0
    for e in range(len(games.node)):
        games.episode[e] = 0
        if games.quota[e] == 0:
            games.node[e] = IDLE
            continue
        x = _begin(board, games, e)
        games.node[e] = x
        _ask(board, games, out, e, x)


@kernel
def move(board, games, last, action):  # type: ignore[no-untyped-def]
    """Write the nodes that the actions int64[P, E] (rows as in the last `due`) lead to into games.landing, and nothing else.

    Players move in rising order, as simultaneous nodes are expanded. Returns (player, row) of an illegal action, or (-1, -1).
    """
    node, rank, landing = board.node, board.rank, games.landing
    for e in range(len(landing)):
        landing[e] = games.node[e]
    for p in range(action.shape[0]):
        for i in range(last.rows[0, p]):
            e = last.slot[p, i]
            x = landing[e]
            a = action[p, i]
            if a < 0 or a >= rank.shape[1]:
                return p, i
            step = rank[node[x, _INFO], a]
            if step < 0:
                return p, i
            landing[e] = node[x, _CHILD] + step
    return -1, -1


@kernel
def advance(board, games, out):  # type: ignore[no-untyped-def]
    """Advance from games.landing to the next decisions; ended games start again until their quotas are played."""
    out.rows[:] = 0
    for e in range(len(games.node)):
        x = np.int64(games.landing[e])
        if x == IDLE:
            continue
        games.length[e] += 1
        x = _past_chance(board, games, e, x)
        if board.node[x, _KIND] == -4:
            _finish(board, games, out, e, x)
            games.episode[e] += 1
            if games.episode[e] == games.quota[e]:
                games.node[e] = IDLE
                continue
            x = _begin(board, games, e)
        games.node[e] = x
        _ask(board, games, out, e, x)


class TreeVectorEnv:
    """E games of one tree (`ludus.envs.base.VectorEnv`). Observations are int32 ids of the enumeration, masks are None.

    One agent per player, so slots are environment numbers. Chance event c of episode k of environment e is decided by
    `ludus.core.seeding.uniform` of a key made from (seeds[e], k) and the counter c, and so by nothing else in the vector.
    """

    def __init__(self, tree: GameTree, num_envs: int) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs is {num_envs}; expected at least 1.")
        _refuse_empty_episodes(tree)
        self.tree = tree
        self.spec = tree.spec
        self.num_envs = num_envs
        self._players = tree.num_players
        self._board = board(tree.arrays)
        self._games = games(num_envs, self._players)
        self._outs = tuple(make_buffers(num_envs, self._players) for _ in range(2))
        self._current = 0
        self._started = False
        self._action = np.zeros((self._players, num_envs), np.int64)
        self._none = np.full(num_envs, -1, np.int32)
        self._true = np.ones(num_envs, np.bool_)

    # ---------------------------------------------------------------------------------- VectorEnv

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError unless there is one seed per environment and no quota is negative."""
        seeds = np.asarray(seeds, np.uint64)
        if seeds.shape != (self.num_envs,):
            raise EnvError(f"seeds have shape {seeds.shape}; expected ({self.num_envs},), one per environment.")
        quota = np.asarray(-1 if episodes is None else episodes)
        if quota.shape not in ((), (self.num_envs,)) or quota.dtype.kind not in "iu":
            raise EnvError(
                f"episodes is {episodes!r}; expected a number, one per environment ({self.num_envs}), or None."
            )
        if episodes is not None and quota.min() < 0:
            raise EnvError(f"episodes has {quota.min()}; expected none below 0. None is no limit.")
        self._games.seed[:] = seeds
        self._games.quota[:] = quota
        self._started = True
        start(self._board, self._games, self._next_buffers())
        return self._timestep()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. An illegal action raises EnvError and leaves every game where it was."""
        if not self._started:
            raise EnvError(f"{self.spec.id} was stepped before its first reset.")
        last = self._outs[self._current]
        self._take(actions, last)
        player, row = move(self._board, self._games, last, self._action)
        if player >= 0:
            raise self._illegal(int(player), int(row), last)
        advance(self._board, self._games, self._next_buffers())
        return self._timestep()

    def snapshot(self) -> bytes:
        """Return the games and the last timestep as a NumPy archive; equal games give equal bytes."""
        if not self._started:
            raise EnvError(f"{self.spec.id} has no state to snapshot before its first reset.")
        last = self._outs[self._current]
        fields = {f"games.{k}": v for k, v in self._games._asdict().items() if k != "landing"}
        fields |= {f"out.{k}": _tidy(k, v, last.rows) for k, v in last._asdict().items()}
        file = io.BytesIO()
        np.savez(file, tree=self._fingerprint(), **fields)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> Timestep:
        """Restore as `VectorEnv.restore` describes. Raises EnvError on bytes that are no snapshot of an equal environment."""
        try:
            with np.load(io.BytesIO(snapshot), allow_pickle=False) as file:
                fields = dict(file)
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise EnvError(f"this is no snapshot of {self.spec.id}: {error}") from error
        if not np.array_equal(fields.get("tree", ()), self._fingerprint()):
            raise EnvError(
                f"this snapshot is not of {self.num_envs} environments of {self.spec.id} as compiled here; restore it into an "
                "environment made with the same game, number of environments and version of OpenSpiel."
            )
        for prefix, target in (("games", self._games), ("out", self._next_buffers())):
            for name, array in target._asdict().items():
                if name != "landing":
                    array[...] = fields[f"{prefix}.{name}"]
        self._started = True
        return self._timestep()

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make the environments on a device as `OffersDevice` describes. On a GPU torch compiles a step, where it can."""
        from ludus.envs.tree.stepping import TreeDeviceEnv  # loads torch

        return TreeDeviceEnv(self.tree, num_envs, device, fused=device.type == "cuda")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    # ---------------------------------------------------------------------------------- inside

    def _next_buffers(self) -> TreeTimestepBuffers:
        self._current = 1 - self._current
        return self._outs[self._current]

    def _take(self, actions: tuple[Array, ...], last: TreeTimestepBuffers) -> None:
        """Copy the actions into one array, one row per player."""
        if len(actions) != self._players:
            raise EnvError(f"actions of {len(actions)} players were given; {self.spec.id} has {self._players}.")
        for p, n in enumerate(last.rows[0].tolist()):
            player_actions = np.asarray(actions[p])
            if player_actions.shape != (n,) or (n and player_actions.dtype.kind not in "iu"):
                raise EnvError(
                    f"actions of player {p} have shape {player_actions.shape} and type {player_actions.dtype}; expected ({n},) "
                    f"integers, one per "
                    "row of the last due decisions."
                )
            self._action[p, :n] = player_actions

    def _illegal(self, player: int, row: int, last: TreeTimestepBuffers) -> EnvError:
        state = int(last.observation[player, row])
        enumeration = self.spec.enumeration
        assert enumeration is not None
        slot = int(last.slot[player, row])
        return EnvError(
            f"illegal action {int(self._action[player, row])} of player {player} in environment {slot} (slot {slot}) of "
            f"{self.spec.id} at {enumeration.key[state]!r}; legal are {np.flatnonzero(enumeration.mask[state]).tolist()}."
        )

    def _timestep(self) -> Timestep:
        out = self._outs[self._current]
        due_count, ended_count, (k, *_) = out.rows.tolist()
        due = tuple(
            ActionRequests(
                slot=out.slot[p, :n],
                observation=out.observation[p, :n],
                mask=None,
                reward=out.reward[p, :n],
                first=out.first[p, :n],
            )
            for p, n in enumerate(due_count)
        )
        ended = tuple(
            ClosedDecisions(
                slot=out.ended_slot[p, :n],
                reward=out.ended_reward[p, :n],
                terminated=self._true[:n],
                observation=self._none[:n],
            )
            for p, n in enumerate(ended_count)
        )
        finished = FinishedEpisodes(
            environment=out.environment[:k], returns=out.returns[:k], terminated=self._true[:k], length=out.length[:k]
        )
        return Timestep(due=due, ended=ended, finished=finished)

    def _fingerprint(self) -> NDArray[np.int64]:
        """Return what two environments must share to share snapshots: the number of games, and the tree."""
        crc = 0
        for array in (self._board.node, self._board.cumulative, self._board.rank, self._board.returns):
            crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
        return np.array([1, self.num_envs, crc], np.int64)


def _tidy(name: str, array: Any, rows: NDArray[np.int64]) -> Any:
    """Return a copy with zeros beyond the rows that hold, where old timesteps have left theirs."""
    if name == "rows":
        return array
    tidy = np.zeros_like(array)
    if array.ndim == 1 or name == "returns":
        tidy[: rows[2, 0]] = array[: rows[2, 0]]
        return tidy
    for p, n in enumerate(rows[1 if name.startswith("ended") else 0]):
        tidy[p, :n] = array[p, :n]
    return tidy


def _refuse_empty_episodes(tree: GameTree) -> None:
    """Raise EnvError for a game with episodes without a decision: they would give steps in which nothing is due."""
    nodes, todo = tree.arrays.nodes, [0]
    while todo:
        x = todo.pop()
        if nodes.player[x] == TERMINAL:
            raise EnvError(
                f"{tree.spec.id} can end by chance before anyone moves, which vector environments do not support."
            )
        if nodes.player[x] == CHANCE:
            first, last = int(nodes.child[x]), int(nodes.child[x] + nodes.degree[x])
            chance = np.diff(nodes.cumulative[first:last], prepend=0.0)
            todo += [first + int(k) for k in np.flatnonzero(chance > 0)]
