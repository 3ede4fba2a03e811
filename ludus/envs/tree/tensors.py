"""A compiled game tree on any device: the answers of `GameTree` for batches of policies. Games are played there by `stepping.py`.

    GameTree --copied once--> TreeTensors --tables [B, I_p, A]--> plans [B, S_p] --> payoffs, best responses, NashConv

Everything goes level by level: a player's information states by how many own decisions lead to them (von Stengel, "Efficient
computation of behavior strategies", 1996). A level is array work for all policies together; only the
number of levels, which the game fixes, is counted in Python. Nothing is read back from the device, so what the compiled sweeps refuse as
no distribution is not found out here: check a table by `GameTree.realization`, or make it by a softmax.

Sums over outcomes are taken segment by segment in one order, not by atomic adds: the same call on the same GPU is bitwise reproducible.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.backend.device import to_device, to_numpy
from ludus.core.errors import PolicyError
from ludus.core.ties import TIE
from ludus.core.types import Exploitability
from ludus.envs.tree.game_tree import GameTree, Plan, Table
from ludus.envs.tree.sweeps import plan_contraction

__all__ = ["PlacedTree", "TreeTensors"]

_ROOM = 2**27  # numbers that payoffs may hold at a time between outcomes and policies: 1 GiB


@dataclass(frozen=True, slots=True, eq=False)
class _Segments:
    """Rows to be summed: those of segment k are at offsets[k] .. offsets[k + 1] - 1."""

    offsets: Tensor

    def sum(self, rows: Tensor) -> Tensor:
        """Sum rows float64[n, B] to float64[segments, B]; 0 for an empty segment."""
        return torch.segment_reduce(rows, "sum", offsets=self.offsets, axis=0, unsafe=True, initial=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The n information states of a player after as many own decisions, by the sequence that leads to each, and their m sequences.

    above int64[m]: the sequence before each, in the level before.
    choices int64[n, W]: each state's sequences, in this level; m, where a state has fewer. action int64[n, W]. under: the states of
    each sequence of the level before.
    """

    above: Tensor
    choices: Tensor
    action: Tensor
    under: _Segments


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One player. sizes: of levels, the empty sequence's first. place int64[S_p]: where each sequence is, one level after the other;
    deep int64[S_p]: the other way; state_place int64[I_p]: where each state is, likewise.

    own: the outcomes of each sequence, and of these in that order all sequences int64[P, U] and own weight float64[U, 1].
    entry int64[S_p - 1]: where a flat table [I_p * A] holds the probability of every sequence but the empty one.
    """

    levels: tuple[_Level, ...]
    sizes: tuple[int, ...]
    place: Tensor
    deep: Tensor
    state_place: Tensor
    own: _Segments
    sequence: Tensor
    weight: Tensor
    entry: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Summed:
    """A player who is summed out, or the last. sequence int64[G] by what remains; order int64[G]: where each of these was."""

    sequence: Tensor
    order: Tensor
    rest: _Segments


class TreeTensors:
    """A `GameTree` on a device. Tensors are float64 there; a batch of B profiles is one tensor per player, row b of each.

    It takes B × (merged terminals + sequences) numbers of memory, at most several times.

    Args:
        tree: The game.
        device: Where it is copied.
    """

    def __init__(self, tree: GameTree, device: str | torch.device) -> None:
        self.tree = tree
        self.device = torch.device(device)
        self._sides = tuple(self._side(p) for p in range(tree.num_players))
        weight = tree.arrays.outcomes.weight
        self._negated = len(weight) == 2 and bool(np.array_equal(weight[0], -weight[1]))
        self._weight = self._put((weight[:1] if self._negated else weight).T)
        self._orders: dict[tuple[int, ...], tuple[_Summed, ...]] = {}

    # ---------------------------------------------------------------------------------- tables, plans, values

    def realization(self, player: int, tables: Tensor) -> Tensor:
        """Convert tables float64[B, I_p, A] to plans float64[B, S_p]. Raises PolicyError for tensors of another shape."""
        self._expect(player, tables, (self._states(player), self.tree.num_actions), "tables")
        side = self._sides[player]
        entry = side.entry.index_select(0, side.deep[1:] - 1)
        chances = tables.flatten(1).t().contiguous().index_select(0, entry)
        blocks = [tables.new_ones(1, len(tables))]
        for level, chance in zip(side.levels, torch.split(chances, list(side.sizes[1:])), strict=True):
            blocks.append(blocks[-1].index_select(0, level.above) * chance)
        return torch.cat(blocks).index_select(0, side.place).t()

    def realisation(self, player: int, tables: Tensor) -> Tensor:
        """Return `realization`; a former name."""
        warnings.warn("TreeTensors.realisation is called realization now.", DeprecationWarning, stacklevel=2)
        return self.realization(player, tables)

    def values(self, plans: Sequence[Tensor]) -> Tensor:
        """Compute the expected returns float64[B, P] of B profiles; plans[p] float64[B, S_p]."""
        rows = self._profiles(plans)
        return torch.stack([(self._gradient(p, rows) * row).sum(0) for p, row in enumerate(rows)], dim=1)

    # ---------------------------------------------------------------------------------- best responses

    def best_response(self, player: int, plans: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Compute best responses to B profiles, as `GameTree.best_response`.

        Args:
            player: p.
            plans: By player; plans[q] float64[B, S_q]. plans[player] is not used.

        Returns:
            (values float64[B], tables float64[B, I_p, A]).

        Raises:
            PolicyError: Plans have another shape, dtype or device.
        """
        return self._response(player, *self._stakes(player, self._profiles(plans)))

    def best_response_joint(self, player: int, plans: Sequence[Tensor], probs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (value float64[], table float64[I_p, A]) against a correlated distribution: profile b with probability probs[b]."""
        step = max(1, _ROOM // max(1, self._weight.shape[0]))
        parts = zip(*(torch.split(plan, step) for plan in plans), strict=True)
        gradient = stake = plans[player].new_zeros(self.tree.num_sequences(player), 1)
        for part, prob in zip(parts, torch.split(probs, step), strict=True):
            earned, at_stake = self._stakes(player, self._profiles(part))
            gradient, stake = gradient + earned @ prob[:, None], stake + at_stake @ prob[:, None]
        value, table = self._response(player, gradient, stake)
        return value[0], table[0]

    def exploitability(self, plans: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return (gains, values), float64[B, P] each: what each player's best response gains over each profile; NashConv is
        `gains.sum(1)`."""
        rows = self._profiles(plans)
        gain, value = [], []
        for player, row in enumerate(rows):
            gradient = self._gradient(player, rows)
            value.append((gradient * row).sum(0))
            gain.append(self._best(player, gradient) - value[-1])
        return torch.stack(gain, dim=1), torch.stack(value, dim=1)

    def _gradient(self, player: int, rows: Sequence[Tensor]) -> Tensor:
        """Return float64[S_p, B]: what each sequence earns (times its own plan) against the others' plans; rows[q] float64[S_q, B]."""
        return self._sides[player].own.sum(self._terms(player, rows))

    def _stakes(self, player: int, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return (as `_gradient`, float64[S_p, B] the size of each sequence's terms: what is at stake there)."""
        own, terms = self._sides[player].own, self._terms(player, rows)
        return own.sum(terms), own.sum(terms.abs())

    def _terms(self, player: int, rows: Sequence[Tensor]) -> Tensor:
        """Return float64[U, B]: what each outcome adds, by the player's sequences."""
        side = self._sides[player]
        reach = side.weight.expand(-1, rows[player].shape[1])
        for other, row in enumerate(rows):
            if other != player:
                reach = reach * row.index_select(0, side.sequence[other])
        return reach.contiguous()

    def _best(self, player: int, gradient: Tensor) -> Tensor:
        """Return float64[B]: the values of best responses, for float64[S_p, B]."""
        blocks, levels = self._blocks(player, gradient), self._sides[player].levels
        for k in range(len(levels), 0, -1):
            most = _choices(blocks[k], levels[k - 1], -torch.inf).amax(1)
            blocks[k - 1] = blocks[k - 1] + levels[k - 1].under.sum(most)
        return blocks[0][0]

    def _blocks(self, player: int, rows: Tensor) -> list[Tensor]:
        """Return float64[S_p, B] by levels of sequences."""
        side = self._sides[player]
        return list(torch.split(rows.index_select(0, side.deep), list(side.sizes)))

    def _respond(self, player: int, gradient: Tensor, stake: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return (values float64[B], the best choice of each level's states int64[n, B], the lowest of equals) for float64[S_p, B]."""
        blocks, stakes = self._blocks(player, gradient), self._blocks(player, stake)
        levels, chosen = self._sides[player].levels, []
        for k in range(len(levels), 0, -1):
            level = levels[k - 1]
            earned, at_stake = _choices(blocks[k], level, -torch.inf), _choices(stakes[k], level, 0.0).amax(1)
            most = earned.amax(1)
            chosen.append((earned >= (most - TIE * at_stake)[:, None]).to(torch.int8).argmax(1))  # the first of them
            blocks[k - 1] = blocks[k - 1] + level.under.sum(most)
            stakes[k - 1] = stakes[k - 1] + level.under.sum(at_stake)
        return blocks[0][0], chosen[::-1]

    def _response(self, player: int, gradient: Tensor, stake: Tensor) -> tuple[Tensor, Tensor]:
        side = self._sides[player]
        value, chosen = self._respond(player, gradient, stake)
        count = gradient.shape[1]
        table = gradient.new_zeros(count, self._states(player), self.tree.num_actions)
        if chosen:
            actions = [level.action.gather(1, place) for level, place in zip(side.levels, chosen, strict=True)]
            table.scatter_(2, torch.cat(actions).index_select(0, side.state_place).t()[:, :, None], 1.0)
        return value, table

    # ---------------------------------------------------------------------------------- payoffs of all profiles

    def payoffs(self, stacks: Sequence[Tensor]) -> Tensor:
        """Return expected returns float64[P, n_0, …] of every profile of stacked plans, stacks[p] float64[n_p, S_p]."""
        return self.payoffs_slice(0, stacks[0], stacks)

    def payoffs_slice(self, player: int, plans: Tensor, stacks: Sequence[Tensor]) -> Tensor:
        """Return the part of `payoffs` for new policies of one player, plans float64[k, S_p], as `GameTree.payoffs_slice`."""
        players = range(self.tree.num_players)
        order = (player, *(p for p in players if p != player))
        all_stacks = [plans if p == player else stacks[p] for p in players]
        for p in players:
            self._expect(p, all_stacks[p], (self.tree.num_sequences(p),), "stacked plans")
        step = max(1, _ROOM // max(1, self._weight.numel()))
        parts = [
            self._all_profiles(order, [part, *(all_stacks[p] for p in order[1:])]) for part in torch.split(plans, step)
        ]
        table = torch.cat(parts, dim=1)
        if self._negated:
            table = torch.cat([table, -table])
        return table.movedim(1, 1 + player)

    def _all_profiles(self, order: tuple[int, ...], stacks: Sequence[Tensor]) -> Tensor:
        """Return float64[P, n of each in this order] (only the first P where the second's are their negatives)."""
        levels = self._contraction(order)
        coefficient = self._weight  # [G, P × policies of those who are summed out]
        for level, stack in zip(levels[:-1], stacks[:-1], strict=True):
            chosen = stack.t().index_select(0, level.sequence)
            spread = coefficient.index_select(0, level.order)[:, :, None] * chosen[:, None, :]
            coefficient = level.rest.sum(spread.flatten(1))
        last = levels[-1]  # its sequences are distinct by now: one dense product does the rest
        table = coefficient.index_select(0, last.order).t() @ stacks[-1].t().index_select(0, last.sequence)
        return table.reshape(self._weight.shape[1], *(len(stack) for stack in stacks))

    def _contraction(self, order: tuple[int, ...]) -> tuple[_Summed, ...]:
        known = self._orders.get(order)
        if known is None:
            levels = []
            for level in plan_contraction(self.tree.arrays.outcomes, order).levels:
                by = np.argsort(level.group, kind="stable")
                rest = self._segments(level.group, level.groups)
                levels.append(_Summed(self._put(level.sequence[by]), self._put(by), rest))
            known = self._orders[order] = tuple(levels)
        return known

    # ---------------------------------------------------------------------------------- what is copied

    def _put(self, array: NDArray[np.generic]) -> Tensor:
        """Copy an array to the device; integers as int64."""
        kind = np.float64 if array.dtype.kind == "f" else np.int64
        return to_device(np.array(array, kind, order="C"), self.device)

    def _segments(self, group: NDArray[np.integer], groups: int) -> _Segments:
        """Return the segments of rows that are sorted by group."""
        return _Segments(self._put(np.cumsum([0, *np.bincount(group, minlength=groups)])))

    def _side(self, player: int) -> _Side:
        form, outcomes = self.tree.arrays.sequences[player], self.tree.arrays.outcomes
        states = len(form.parent)
        state = np.repeat(np.arange(states), np.diff(form.start))  # of every sequence but the empty one
        depth = _depths(form.parent[state])
        deep = np.argsort(depth, kind="stable")
        place = _inverse(deep)
        local = place - np.searchsorted(depth[deep], depth)  # within the level
        levels, level_states = [], []
        for k in range(1, int(depth.max()) + 1):
            level_sequences = np.flatnonzero(depth == k)
            state_ids = np.unique(state[level_sequences - 1])
            state_ids = state_ids[np.argsort(local[form.parent[state_ids]], kind="stable")]
            width = np.diff(form.start)[state_ids]
            column = np.arange(width.max())
            legal = column < width[:, None]
            sequence = np.where(legal, form.start[state_ids][:, None] + column, 0)
            levels.append(
                _Level(
                    above=self._put(local[form.parent[state[level_sequences - 1]]]),
                    choices=self._put(np.where(legal, local[sequence], len(level_sequences))),
                    action=self._put(form.action[sequence]),
                    under=self._segments(local[form.parent[state_ids]], int((depth == k - 1).sum())),
                )
            )
            level_states.append(state_ids)
        by = np.argsort(outcomes.sequence[player], kind="stable")
        return _Side(
            levels=tuple(levels),
            sizes=tuple(np.bincount(depth).tolist()),
            place=self._put(place),
            deep=self._put(deep),
            state_place=self._put(_inverse(np.concatenate([np.zeros(0, np.int64), *level_states]))),
            own=self._segments(outcomes.sequence[player], form.count),
            sequence=self._put(outcomes.sequence[:, by]),
            weight=self._put(outcomes.weight[player][by, None]),
            entry=self._put(state * self.tree.num_actions + form.action[1:]),
        )

    # ---------------------------------------------------------------------------------- what is refused

    def _states(self, player: int) -> int:
        return len(self.tree.arrays.sequences[player].parent)

    def _expect(self, player: int, tensor: Tensor, shape: tuple[int, ...], what: str) -> None:
        if tensor.shape[1:] != shape or tensor.dtype != torch.float64 or tensor.device.type != self.device.type:
            raise PolicyError(
                f"{what} of player {player} of {self.tree.spec.id} are {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected torch.float64 of shape (policies, {', '.join(map(str, shape))}) on {self.device}."
            )

    def _profiles(self, plans: Sequence[Tensor]) -> list[Tensor]:
        """Return plans [B, S_p] as rows [S_p, B], in which a sequence's policies are adjacent."""
        if len(plans) != self.tree.num_players or len({len(plan) for plan in plans}) > 1:
            raise PolicyError(
                f"plans of {[len(plan) for plan in plans]} policies were given; expected one batch for each of the "
                f"{self.tree.num_players} players of {self.tree.spec.id}, all of one size."
            )
        for p, plan in enumerate(plans):
            self._expect(p, plan, (self.tree.num_sequences(p),), "plans")
        return [plan.t().contiguous() for plan in plans]


class PlacedTree(GameTree):
    """A `GameTree` whose exact answers are computed on a device; they are the same up to rounding (1e-12). Plans and answers are in host
    memory, and travel with each question: it is for who asks about whole populations, or large games. `tensors` has batches."""

    def __init__(self, tree: GameTree, device: str | torch.device) -> None:
        super().__init__(tree.arrays, tree.spec)
        self.tensors = TreeTensors(tree, device)

    def best_response_joint(
        self, player: int, profiles: Sequence[Sequence[Plan | None]], probs: Sequence[float]
    ) -> tuple[float, Table]:
        """Compute a best response as `GameTree` describes."""
        self._check_joint(profiles, probs)
        checked = [self._profile(plans, without=player) for plans in profiles]
        own = torch.zeros(len(probs), self.num_sequences(player), dtype=torch.float64, device=self.tensors.device)
        plans = [own if p == player else self._batch([plan[p] for plan in checked]) for p in range(self.num_players)]
        weights = to_device(np.asarray(probs, np.float64), self.tensors.device)
        value, table = self.tensors.best_response_joint(player, plans, weights)
        return float(to_numpy(value)), to_numpy(table)

    def values(self, plans: Sequence[Plan]) -> NDArray[np.float64]:
        """Compute values as `GameTree` describes."""
        values: NDArray[np.float64] = to_numpy(self.tensors.values([self._batch([p]) for p in self._profile(plans)]))[0]
        return values

    def payoffs_slice(
        self, player: int, plans: NDArray[np.float64], stacks: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Compute payoffs as `GameTree` describes."""
        all_stacks = [np.atleast_2d(plans if p == player else stacks[p]) for p in range(self.num_players)]
        batches = [self._batch(stack) for stack in all_stacks]
        return to_numpy(self.tensors.payoffs_slice(player, batches[player], batches))

    def exploitability(self, plans: Sequence[Plan]) -> Exploitability:
        """Compute gains as `GameTree` describes."""
        gain, value = self.tensors.exploitability([self._batch([plan]) for plan in self._profile(plans)])
        return Exploitability(gain=to_numpy(gain)[0], value=to_numpy(value)[0])

    def _batch(self, plans: Sequence[Plan] | NDArray[np.float64]) -> Tensor:
        return to_device(np.asarray(plans, np.float64), self.tensors.device)


def _choices(rows: Tensor, level: _Level, missing: float) -> Tensor:
    """Gather rows float64[m, B] by the choices of each of the level's states: float64[n, W, B], `missing` where a state has fewer."""
    padded = torch.cat([rows, torch.full_like(rows[:1], missing)])
    return padded[level.choices]


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _depths(before: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return int64[S]: how many decisions each sequence has; before[s - 1] is the sequence before s."""
    depth, level = np.zeros(len(before) + 1, np.int64), np.arange(len(before) + 1) == 0
    while level.any():
        level = np.concatenate([[False], level[before]])
        depth[level] = depth.max() + 1
    return depth
