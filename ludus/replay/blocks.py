"""What a learner did, as it lies on a device: dense, since how many rows there are must not be read back while they are made.

The same as `Trajectories` says, row by row: C slots side by side, K places in time below each other, and which of these are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Block:
    """Decisions of C slots (environments × agents of the learner, those of one environment side by side).

    row: bool[K, C], a decision whose reward has come; a slot's rows follow each other in time. observation: [K, C, *shape], or int64[K, C]
    ids. mask: bool[K, C, A] or None. action: [K, C, …]. logp: float32[K, C] of the behaviour. reward: float32[K, C], received after the
    row's action up to the slot's next decision or its end. ended, terminated: bool[K, C], that this was the episode's end.
    final: [L, C, *shape], or ids (-1: none), final observations by time, and at int64[K, C] the place of a row's; None: nothing is ever
    truncated. until int64[K, C]: as `at`, but up to the episode's end where an agent's part in it ends before.
    last: [C, *shape], or ids: the observation that follows the last row of a slot that goes on; None: everything has ended.
    state [K, C, *state], final_state [L, C, *state], last_state [C, *state]: of the environment, where they were asked for.

    players: of each slot of one environment, whose it is. num_rows, num_truncated: how many rows there are, at truncations. num_episodes:
    that ended, as agents with a decision in them say it. fresh: no slot goes on with an episode of the block before. counted: False where
    numbers are not read yet: num_rows is then how many rows there are at most.
    """

    row: Tensor
    observation: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor
    reward: Tensor
    ended: Tensor
    terminated: Tensor
    at: Tensor
    until: Tensor
    final: Tensor | None
    last: Tensor | None
    players: tuple[int, ...]
    num_rows: int
    num_truncated: int
    num_episodes: int
    fresh: bool
    state: Tensor | None = None
    final_state: Tensor | None = None
    last_state: Tensor | None = None
    counted: bool = True


def placed_where(chosen: Tensor, count: int) -> Tensor:
    """Return the first `count` places where `chosen` bool[n] is true, int64[count], rising; there must be so many, which is known."""
    import torch

    place = torch.where(chosen, chosen.cumsum(0) - 1, count).clamp(max=count)
    out = torch.zeros(count + 1, dtype=torch.int64, device=chosen.device)
    return out.scatter_(0, place, torch.arange(len(chosen), device=chosen.device))[:count]


@dataclass(frozen=True, slots=True, eq=False)
class BlockRows:
    """The n rows of a block in the order of slots, and of time within them, so that a row's successor in its episode is the one behind it.

    where int64[n]: row k of slot c is k × C + c. slot int64[n]. ended, cut bool[n]: nothing of its episode follows, since that is over, or
    only the block is. valid bool[n]: which of them are rows; the others, behind them, repeat the first one. None: all are.
    """

    where: Tensor
    slot: Tensor
    ended: Tensor
    cut: Tensor
    valid: Tensor | None = None

    @staticmethod
    def of(block: Block) -> BlockRows:
        """Return the rows of a block; there is at least one."""
        import torch

        times, slots = block.row.shape
        place = placed_where(block.row.t().reshape(-1), block.num_rows)
        valid = None
        if not block.counted:
            valid = torch.arange(len(place), device=place.device) < block.row.sum()
            place = torch.where(valid, place, place[:1])
        slot = place // times
        where = place % times * slots + slot
        ended = block.ended.flatten()[where]
        if valid is not None:
            ended = ended | ~valid
        last = torch.cat([slot[1:] != slot[:-1], torch.ones_like(ended[:1])])
        if valid is not None:
            last = last | ~valid.roll(-1)
        return BlockRows(where, slot, ended, last & ~ended, valid)


def of_players(block: Block, column: Tensor, *, others: bool = False) -> Tensor:
    """Return float64[K, C]: sums of a column float64[K, C] over the slots of the same environment that are the same player's, or all
    others'."""
    player = column.new_tensor(block.players)
    counted = (player[:, None] == player) ^ others
    return (column.view(len(column), -1, len(player)) @ counted.to(column.dtype)).view_as(column)


def until_next(block: Block, column: Tensor) -> Tensor:
    """Return float64[K, C]: sums of a column float64[K, C] over the times from each row up to its slot's next one, or its episode's end."""
    times = len(column)
    so_far = column.new_ones(times, times).tril() @ column  # a product, whose bits repeat on a GPU
    return so_far.gather(0, block.until) - so_far + column
