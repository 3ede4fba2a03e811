"""Games of a compiled tree that are stepped on a device: whole ones by tables (`TreeGames.play`), or step by step (`TreeDeviceEnv`).

    GameTree --copied once--> TreeGames --tables [K, I_p, A]--> Episodes [N]
                                        --actions [E, 1]------> DeviceTimestep

A step is some fifty elementwise operations and look-ups, which torch makes one kernel of where it can compile. What chance does is counted,
not drawn from a state: by `ludus.core.seeding.uniform`'s numbers, so that games are the same on every device, and the same as
`TreeVectorEnv`'s under the same seeds. Nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.backend.device import compile_failure, missing_compiler, to_device
from ludus.core.errors import EnvError, PolicyError
from ludus.core.machine import out_of_memory
from ludus.envs.device_vector import DeviceSlots, DeviceTimestep
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.tree_arrays import Nodes
from ludus.envs.tree.walk import CHANCE, TERMINAL

__all__ = ["Episodes", "TreeDeviceEnv", "TreeGames"]

# --------------------------------------------------------------------------------------------------------------------
# `ludus.core.seeding` in int64, whose products wrap as those of uint64 do; only a shift must be told to bring zeros in.

_BITS = 53  # of a number that decides a move
_ONE = 1 << _BITS


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


_GOLDEN, _FIRST, _SECOND = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _down(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Compute `seeding.mix`."""
    x = (x ^ _down(x, 30)) * _FIRST
    x = (x ^ _down(x, 27)) * _SECOND
    return x ^ _down(x, 31)


def keys(seed: Tensor, number: Tensor) -> Tensor:
    """Compute the keys of the numbered parts of a seed, as `publisher_kernels.episode_seed`."""
    return _mix(seed ^ _mix((number + 1) * _GOLDEN))


def uniform_bits(key: Tensor, counter: Tensor) -> Tensor:
    """Compute `seeding.uniform` × 2 ** 53."""
    return _down(_mix(_mix(key + (counter + 1) * _GOLDEN) ^ _GOLDEN), 64 - _BITS)


def search(below: Tensor, first: Tensor, width: Tensor, number: Tensor, halvings: int) -> Tensor:
    """Return int32[n]: which of `width` entries from `first` on is the first with number < below; that is so at least of the last."""
    low, left = torch.zeros_like(width), width
    for _ in range(halvings):
        half = left >> 1
        beyond = (number >= below.index_select(0, first + low + (half - 1).clamp(min=0))) & (half > 0)
        low, left = low + half * beyond, left - half
    return low


# --------------------------------------------------------------------------------------------------------------------
# What is on the device


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """N games that were played. returns float64[N, P]. decisions int64[N]: how many moves the players made."""

    returns: Tensor
    decisions: Tensor


class _Board(NamedTuple):
    """N nodes. child int32[N]: the first, a terminal's is itself. width int32[N]: number of children, 1 of terminals. chance bool[N].
    row int32[N] of `returns` float64[T, P], -1 at others than terminals. who int64[N]: the player, or P. decisions int64[N]: decisions
    before. below int64[N]: under chance, the number below which this node or one before it is taken.
    due bool[N, P]: who moves; ids int64[N, P]: where, else any of the player's. rank int32[I, A]: the place of an action among the legal
    ones, 0 of others. so_far float64[N, P], or [0, P] if rewards come only at its end. (Small dtypes, so that a GPU's caches hold them.)
    """

    child: Tensor
    width: Tensor
    chance: Tensor
    row: Tensor
    returns: Tensor
    who: Tensor
    decisions: Tensor
    below: Tensor
    due: Tensor
    ids: Tensor
    rank: Tensor
    so_far: Tensor


class _Lengths(NamedTuple):
    """What is counted in Python. steps: of the longest game. opening: chance events before the first move, at most; events: after a move.
    halvings: to find one of the most children; of_chance: of the most that chance has."""

    steps: int
    opening: int
    events: int
    halvings: int
    of_chance: int


class _Tables(NamedTuple):
    """Of one player, of every sequence but the empty one, counted from 0, int64[S_p - 1]: entry, where a flat table [I_p * A] holds its
    probability; row, the first of its state; end, that after its state's last. first int64[N]: a node's first sequence; 0 of others'."""

    entry: Tensor
    row: Tensor
    end: Tensor
    first: Tensor


class _Fused:
    """A function of tensors of which torch makes few kernels. What it cannot compile runs as it is from then on; `why` says why not."""

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self.why = missing_compiler(str(device))
        self._function, self._compiled = function, torch.compile(function, fullgraph=True)

    def __call__(self, *args: Any) -> Any:
        if self.why:
            return self._function(*args)
        try:
            return self._compiled(*args)
        except Exception as error:  # of whatever class; what is the function's own will come again
            if out_of_memory(error) is not None:
                raise
            self.why = compile_failure(error)
            return self._function(*args)


class TreeGames:
    """A `GameTree` on a device, to be played there.

    Args:
        tree: The game.
        device: Where it is copied.
        fused: Whether torch compiles a step into one kernel or a few, which takes some ten seconds once. Where it cannot, `unfused` is the
            reason, and steps are taken operation by operation.
    """

    def __init__(self, tree: GameTree, device: str | torch.device, *, fused: bool = False) -> None:
        self.tree, self.device = tree, torch.device(device)
        nodes = tree.arrays.nodes
        self.lengths, decisions = _count_steps(nodes)
        self.board = self._board(decisions)
        self._tables = tuple(self._tables_of(p) for p in range(tree.num_players))
        self._steps = torch.arange(self.lengths.steps, device=self.device)
        self._fused = (_Fused(_play, self.device), _Fused(_advance, self.device)) if fused else ()
        steps: tuple[Callable[..., Any], ...] = self._fused or (_play, _advance)
        self._play, self._advance = steps

    @property
    def unfused(self) -> str:
        """Return why steps are not compiled though that was asked for; "" while nothing is known against it."""
        return next((fused.why for fused in self._fused if fused.why), "")

    # ---------------------------------------------------------------------------------- whole games

    def play(
        self, tables: Sequence[Tensor], episodes: int, *, seed: int, choice: Sequence[Tensor] | None = None
    ) -> Episodes:
        """Play N whole games.

        Every game makes as many steps as the longest can have; games that are over do not change. An action of probability 0 is never
        played; others are, to within 2 ** -53.

        Args:
            tables: By seat; tables[p] float64[K_p, I_p, A].
            episodes: N.
            seed: In [0, 2 ** 63). It decides the games, which are equal on every device.
            choice: By seat; game n plays table choice[p][n], int64[N]; None: each seat has one table.

        Returns:
            Returns and numbers of decisions.

        Raises:
            PolicyError: Tensors have another shape, dtype or device.
        """
        board, players = self.board, range(self.tree.num_players)
        self._check(tables, episodes, choice)
        below, first, base = [board.below], torch.where(board.chance, board.child, 0).long(), len(board.below)
        for p in players:
            first = torch.where(board.who == p, self._tables[p].first + base, first)
            below.append(self.thresholds(p, tables[p]))
            base += len(below[-1])
        shift = None
        if choice is not None:
            later = [chosen * (self.tree.num_sequences(p) - 1) for p, chosen in enumerate(choice)]
            shift = torch.stack([*later, torch.zeros_like(later[0])])
        numbers = torch.arange(episodes, device=self.device)
        key, node = (
            keys(torch.full((), seed, device=self.device), numbers),
            torch.zeros_like(numbers, dtype=torch.int32),
        )
        flat, halvings = torch.cat(below), self.lengths.halvings
        first = first.int() if base < 1 << 31 else first
        for step in self._steps:
            node = self._play(board, flat, first, shift, key, step, node, halvings)
        returns = board.returns.index_select(0, board.row.index_select(0, node))
        return Episodes(returns, board.decisions.index_select(0, node))

    def first_sequence(self, player: int) -> Tensor:
        """Return int64[N], where the thresholds of a node's moves begin in a table of a player; 0 of nodes where it does not move."""
        return self._tables[player].first

    def thresholds(self, player: int, tables: Tensor) -> Tensor:
        """Return int64[K (S_p - 1)] of tables float64[K, I_p, A]: the number of 53 bits below which a player chooses this action of its
        state, or one before it; never one of probability 0."""
        at = self._tables[player]
        chances = tables.flatten(1).index_select(1, at.entry)
        # Sums are differences of sums over all states before, which may wrap, as differences do too.
        parts = torch.cat([tables.new_zeros(len(tables), 1), chances], dim=1).mul(_ONE).round().long().cumsum(1)
        before = parts.index_select(1, at.row)
        through, total = parts[:, 1:] - before, parts.index_select(1, at.end) - before
        return torch.where(through >= total, _ONE, through.clamp(max=_ONE)).flatten()

    def _check(self, tables: Sequence[Tensor], episodes: int, choice: Sequence[Tensor] | None) -> None:
        players, name = self.tree.num_players, self.tree.spec.id
        if len(tables) != players:
            raise PolicyError(f"tables of {len(tables)} players were given; {name} has {players}.")
        for p, table in enumerate(tables):
            shape = (len(self.tree.arrays.sequences[p].parent), self.tree.num_actions)
            if table.shape[1:] != shape or table.dtype != torch.float64 or table.device.type != self.device.type:
                raise PolicyError(
                    f"tables of player {p} of {name} are {table.dtype} of shape {tuple(table.shape)} on {table.device}; "
                    f"expected torch.float64 of shape (policies, {shape[0]}, {shape[1]}) on {self.device}."
                )
        if choice is None and any(len(table) != 1 for table in tables):
            raise PolicyError(
                f"the seats have {[len(table) for table in tables]} tables; give `choice`, int64[episodes] per seat, which says whose "
                "turn each game is, or one table per seat."
            )
        if choice is not None and [tuple(chosen.shape) for chosen in choice] != [(episodes,)] * players:
            raise PolicyError(
                f"choice has shapes {[tuple(chosen.shape) for chosen in choice]}; expected ({episodes},) for each of {players} seats."
            )

    # ---------------------------------------------------------------------------------- step by step

    def begin(self, seeds: Tensor) -> _Games:
        """Return games at the first decision of their episode 0. seeds int64[E]."""
        zero = torch.zeros_like(seeds)
        key = keys(seeds, zero)
        node, counter = _past_chance(self.board, zero.int(), key, zero, self.lengths.opening, self.lengths.of_chance)
        paid = self.board.so_far.new_zeros(len(seeds), self.tree.num_players)
        if len(self.board.so_far):
            paid = self.board.so_far.index_select(0, node) * self.board.due.index_select(0, node)
        return _Games(seeds, key, node, counter, zero, torch.zeros_like(seeds), paid)

    def advance(self, games: _Games, actions: Tensor, quota: Tensor) -> tuple[_Games, _Ends]:
        """Take one step. actions int64[E, P], read where due; quota int64[]: episodes of each environment."""
        answer: tuple[_Games, _Ends] = self._advance(self.board, games, actions, quota, self.lengths)
        return answer

    # ---------------------------------------------------------------------------------- what is copied

    def _put(self, array: NDArray[np.generic], kind: type[np.generic] = np.int64) -> Tensor:
        return to_device(np.array(array, kind, order="C"), self.device)

    def _board(self, decisions: NDArray[np.int64]) -> _Board:
        arrays, players = self.tree.arrays, self.tree.num_players
        nodes, count = arrays.nodes, len(arrays.nodes.player)
        ends, chance = nodes.player == TERMINAL, nodes.player == CHANCE
        # Chance takes a child if a uniform number is below its `cumulative`, and its last child in any case.
        below = np.minimum(np.ceil(nodes.cumulative * _ONE), _ONE).astype(np.int64)
        below[(nodes.child + nodes.degree - 1)[chance]] = _ONE
        due = np.zeros((count, players), np.bool_)
        offset = np.array(self.tree.enumeration.offset)
        somewhere = np.minimum(offset[:-1], offset[-1] - 1)  # of a player who never moves, another's
        ids = np.repeat(somewhere[None], count, axis=0)
        mover = nodes.width > 0
        at = np.arange(count)
        for further in range(int(nodes.width.max())):
            rows = np.flatnonzero(mover & (nodes.width > further))
            due[rows, nodes.player[at[rows]]] = True
            ids[rows, nodes.player[at[rows]]] = nodes.info[at[rows]]
            at[rows] = nodes.child[at[rows]]
        return _Board(
            child=self._put(np.where(ends, np.arange(count), nodes.child), np.int32),
            width=self._put(np.where(ends, 1, nodes.degree), np.int32),
            chance=self._put(chance, np.bool_),
            row=self._put(nodes.terminal, np.int32),
            returns=self._put(arrays.returns, np.float64),
            who=self._put(np.where(nodes.player >= 0, nodes.player, players)),
            decisions=self._put(decisions),
            below=self._put(below),
            due=self._put(due, np.bool_),
            ids=self._put(ids),
            rank=self._put(np.maximum(arrays.rank, 0), np.int32),
            so_far=self._put(np.zeros((0, players)) if arrays.so_far is None else arrays.so_far, np.float64),
        )

    def _tables_of(self, player: int) -> _Tables:
        nodes, form = self.tree.arrays.nodes, self.tree.arrays.sequences[player]
        state = np.repeat(np.arange(len(form.parent)), np.diff(form.start))
        own_nodes = np.flatnonzero(nodes.player == player)
        first = np.zeros(len(nodes.player), np.int64)
        first[own_nodes] = form.start[nodes.info[own_nodes] - self.tree.enumeration.offset[player]] - 1
        return _Tables(
            entry=self._put(state * self.tree.num_actions + form.action[1:]),
            row=self._put(form.start[:-1][state] - 1),
            end=self._put(form.start[1:][state] - 1),
            first=self._put(first),
        )


def _count_steps(nodes: Nodes) -> tuple[_Lengths, NDArray[np.int64]]:
    """Return (what is counted, int64[N] how many decisions lead to each node)."""
    decisions, at, steps, opening, events = np.zeros(len(nodes.player), np.int64), np.zeros(1, np.int64), -1, 0, 0
    run = np.zeros(len(nodes.player), np.int64)  # of chance events that end here
    while len(at):
        degree = nodes.degree[at].astype(np.int64)
        sibling = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
        child = np.repeat(nodes.child[at], degree) + sibling
        decisions[child] = np.repeat(decisions[at] + (nodes.player[at] >= 0), degree)
        run[child] = np.repeat(np.where(nodes.player[at] == CHANCE, run[at] + 1, 0), degree)
        opening = max(opening, int(run[child][decisions[child] == 0].max(initial=0)))
        events = max(events, int(run[child][decisions[child] > 0].max(initial=0)))
        at, steps = child, steps + 1
    of_chance = int(nodes.degree[nodes.player == CHANCE].max(initial=1))
    halvings = (int(nodes.degree.max()) - 1).bit_length()
    return _Lengths(steps, opening, events, halvings, (of_chance - 1).bit_length()), decisions


# --------------------------------------------------------------------------------------------------------------------
# One step: functions of tensors alone, each of which may become one kernel


def _play(
    board: _Board,
    below: Tensor,
    first: Tensor,
    shift: Tensor | None,
    key: Tensor,
    step: Tensor,
    node: Tensor,
    halvings: int,
) -> Tensor:
    """Return the next nodes of games that tables play. shift int64[P + 1, N]: where the table of who moves begins."""
    entry = first.index_select(0, node)
    if shift is not None:
        entry = entry + shift.gather(0, board.who.index_select(0, node)[None])[0]
    choice = search(below, entry, board.width.index_select(0, node), uniform_bits(key, step), halvings)
    return board.child.index_select(0, node) + choice


class _Games(NamedTuple):
    """E environments. seed, key int64[E]: of the environment, and of its episode's chance events, of which `counter` int64[E] happened.
    node int32[E]; episode, length int64[E]. paid float64[E, P]: summed reward at each player's last decision."""

    seed: Tensor
    key: Tensor
    node: Tensor
    counter: Tensor
    episode: Tensor
    length: Tensor
    paid: Tensor


class _Ends(NamedTuple):
    """What a step returns. due bool[E, P], ids int64[E, P], reward float32[E, P]; over bool[E], returns float64[E, P], length
    int64[E]."""

    due: Tensor
    ids: Tensor
    reward: Tensor
    over: Tensor
    returns: Tensor
    length: Tensor


def _past_chance(
    board: _Board, node: Tensor, key: Tensor, counter: Tensor, events: int, halvings: int
) -> tuple[Tensor, Tensor]:
    """Return (the first node from here on that is no chance node, the counter after it)."""
    for _ in range(events):
        chance, child = board.chance.index_select(0, node), board.child.index_select(0, node)
        width = torch.where(chance, board.width.index_select(0, node), 1)
        choice = search(board.below, child, width, uniform_bits(key, counter), halvings)
        node, counter = torch.where(chance, child + choice, node), counter + chance
    return node, counter


def _advance(board: _Board, games: _Games, actions: Tensor, quota: Tensor, lengths: _Lengths) -> tuple[_Games, _Ends]:
    """Take one step; see `TreeGames.advance`."""
    playing, node = games.episode < quota, games.node
    due = board.due.index_select(0, node) & playing[:, None]
    place = board.ids.index_select(0, node) * board.rank.shape[1] + actions.clamp(0, board.rank.shape[1] - 1)
    for p in range(actions.shape[1]):  # in rising order, as simultaneous nodes are expanded
        moved = board.child.index_select(0, node) + board.rank.flatten().index_select(0, place[:, p])
        node = torch.where(due[:, p], moved, node)
    node, counter = _past_chance(board, node, games.key, games.counter, lengths.events, lengths.of_chance)

    row = board.row.index_select(0, node)
    over = (row >= 0) & playing
    returns, length = board.returns.index_select(0, row.clamp(min=0)), games.length + playing
    so_far = board.so_far.index_select(0, node) if len(board.so_far) else torch.zeros_like(returns)
    reward = torch.where(over[:, None], returns, so_far) - games.paid

    episode = games.episode + over
    key, counter = torch.where(over, keys(games.seed, episode), games.key), torch.where(over, 0, counter)
    begun, events = _past_chance(board, torch.zeros_like(node), key, counter, lengths.opening, lengths.of_chance)
    node, counter = torch.where(over, begun, node), torch.where(over, events, counter)
    due = board.due.index_select(0, node) & (episode < quota)[:, None]
    paid = games.paid
    if len(board.so_far):
        paid = torch.where(due, board.so_far.index_select(0, node), torch.where(over[:, None], 0.0, paid))
    after = _Games(games.seed, key, node, counter, episode, torch.where(over, 0, length), paid)
    return after, _Ends(due, board.ids.index_select(0, node), reward.float(), over, returns, length)


# --------------------------------------------------------------------------------------------------------------------
# The vector

_FOR_EVER = (1 << 63) - 1


class TreeDeviceEnv:
    """E games of one tree on a device (`ludus.envs.device_vector.DeviceVectorEnv`), the same as those of `TreeVectorEnv`.

    Observations are ids of the enumeration, which gives the masks, and every episode ends by itself. `reset(seed)` gives environment e a
    seed of its own; episode k of it is what `TreeVectorEnv` plays under that seed.

    Args:
        tree: The game.
        num_envs: E.
        device: Where the games are.
        fused: As in `TreeGames`.

    Raises:
        EnvError: `num_envs` is less than 1.
    """

    def __init__(self, tree: GameTree, num_envs: int, device: str | torch.device, *, fused: bool = False) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs is {num_envs}; expected at least 1.")
        self.spec, self.num_envs, self.device = tree.spec, num_envs, torch.device(device)
        self.games = TreeGames(tree, device, fused=fused)
        self._state: _Games | None = None
        self._quota = torch.full((), _FOR_EVER, device=self.device)

    def seeds(self, seed: int) -> Tensor:
        """Return int64[E], the bits of those that `TreeVectorEnv.reset` would take."""
        numbers = torch.arange(self.num_envs, device=self.device)
        return keys(torch.full((), seed, device=self.device), numbers)

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Reset as `DeviceVectorEnv.reset` describes."""
        if episodes is not None and episodes < 1:
            raise EnvError(f"episodes is {episodes}; expected at least 1, or None for no limit.")
        self._quota = torch.full((), _FOR_EVER if episodes is None else episodes, device=self.device)
        self._state = state = self.games.begin(self.seeds(seed))
        board, nothing = self.games.board, torch.zeros_like(state.paid)
        due, ids = board.due.index_select(0, state.node), board.ids.index_select(0, state.node)
        over = torch.zeros_like(state.length, dtype=torch.bool)
        return self._timestep(_Ends(due, ids, nothing.float(), over, nothing, state.length))

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """Step as `DeviceVectorEnv.step` describes. Raises EnvError before the first reset; an illegal action is taken for a legal one."""
        if self._state is None:
            raise EnvError(f"{self.spec.id} was stepped before its first reset.")
        self._state, ends = self.games.advance(self._state, torch.cat(actions, dim=1), self._quota)
        return self._timestep(ends)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _timestep(self, ends: _Ends) -> DeviceTimestep:
        over = ends.over[:, None]
        slots = tuple(
            DeviceSlots(
                observation=ends.ids[:, p, None],
                mask=None,
                due=ends.due[:, p, None],
                reward=ends.reward[:, p, None],
                ended=over,
                terminated=over,
            )
            for p in range(self.spec.num_players)
        )
        return DeviceTimestep(slots, ends.over, ends.returns, ends.over, ends.length)
