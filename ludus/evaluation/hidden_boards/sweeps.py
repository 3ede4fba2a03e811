"""What mixtures earn on a hidden board, and best responses of both players to them: how large that is, and the computation, in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError
from ludus.core.machine import free_memory
from ludus.envs.sweep_rules import HiddenBoard
from ludus.evaluation.hidden_boards import abrupt, classical, values
from ludus.evaluation.hidden_boards.opponents import Board, Opponent, board_of, count_sequences

_T = TypeVar("_T")
_MOST_NODES = 2_000_000_000
_MOST_CELLS = 12


class Size(NamedTuple):
    """How large sweeps are.

    Attributes:
        nodes: Of a responder's sweep, at most: games end earlier where somebody wins.
        bytes: Memory of both responders' sweeps, policies' tables included, at most.
    """

    nodes: int
    bytes: int


def size_of(board: HiddenBoard, members: tuple[int, int], threads: int) -> Size:
    """Return how large sweeps are.

    Args:
        board: The game.
        members: Policies of each player's mixture.
        threads: Of the sweeps.

    Raises:
        ScenarioError: They are too large, or sweeps do not follow what players see.
    """
    cells = board.cells
    instead = "or `ludus evaluate RUN --exploit EPISODES`, which gives a lower bound"
    if board.counts and not board.abrupt:
        raise ScenarioError(
            "players of obstype=reveal-numturns see how often the other has tried, which exact sweeps of a classical game do not "
            f"follow. Use obstype=reveal-nothing, the abrupt game, {instead}."
        )
    if board.sequences and board.abrupt:
        raise ScenarioError(
            "the policies of this run see the order of their tries (information states), which exact sweeps of an abrupt game do not "
            f"follow. Train with env.options.observation=observation, {instead}."
        )
    nodes = abrupt.count_nodes(cells) if board.abrupt else max(classical.count_nodes(cells, p) for p in range(2))
    if cells > _MOST_CELLS or nodes > _MOST_NODES:
        raise ScenarioError(
            f"an exact sweep of {cells} cells has up to {float(nodes):.0e} nodes, of which {_MOST_NODES:.0e} are the most. Use a smaller "
            f"board, {instead}."
        )
    size = Size(nodes, sum(_bytes_against(board, p, members[p], threads) for p in range(2)))
    if (free := free_memory()) is not None and size.bytes > free:
        raise ScenarioError(
            f"exact sweeps against {' and '.join(map(str, members))} policies need {size.bytes / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB "
            f"are free. Name fewer policies (RUN@best), {instead}."
        )
    return size


def _bytes_against(board: HiddenBoard, player: int, members: int, threads: int) -> int:
    """Return the memory of a sweep against a player's mixture."""
    cells, number, table = board.cells, 8, 0
    if board.sequences:
        states, edges = count_sequences(cells, player)
        table = 25 * states + 64 * edges  # the tree, three plans, and what both are made from
    else:
        table = int(3**cells) * (number * cells * members + 8)
    if board.abrupt:
        lists = (cells + 2) * abrupt.width_of(cells) * (4 + number * members) + 4 * int(3**cells)
        lists = max(lists, number * int(5**cells))  # of a sweep, or of a pair's value
    else:
        table += number * classical.count_placements(cells)
        lists = (cells // 2 + 3) * int(2**cells) * number
    return table + threads * lists


Tell = Callable[[int, int], None]
"""(tasks that are done, of how many)."""


class Earned(NamedTuple):
    """What players earn.

    Attributes:
        value: float64[2], of each player's mixture against the other's.
        best: float64[2], of each player's best response. Their sum is the NashConv of the mixtures.
    """

    value: NDArray[np.float64]
    best: NDArray[np.float64]


def sweep_board(
    board: HiddenBoard, opponents: tuple[Opponent, Opponent], *, threads: int = 1, tell: Tell | None = None
) -> Earned:
    """Compute what mixtures earn, and what a best response of each player earns against the other's.

    A task is one try of a responder's first turn; sums have a fixed order.

    Args:
        board: The game, whose `size_of` has been asked for.
        opponents: The mixture of each player.
        threads: At most; they change no bit of the result.
        tell: Called in this thread after each task.
    """
    boards = [board_of(board, player) for player in range(2)]
    pool = ThreadPoolExecutor(max_workers=threads)
    try:
        value, best = (_abrupt if board.abrupt else _classical)(pool, boards, opponents, tell)
        return Earned(np.array([value, -value]), best)
    finally:
        pool.shutdown(cancel_futures=True)


def _abrupt(
    pool: ThreadPoolExecutor, boards: list[Board], opponents: tuple[Opponent, Opponent], tell: Tell | None
) -> tuple[float, NDArray[np.float64]]:
    def earn(player: int, cell: int, free: bool) -> float:
        return abrupt.first_try(boards[player], opponents[1 - player], cell, free=free)

    cells = range(boards[0].cells)
    tries = [(p, cell, free) for p in range(2) for cell in cells for free in (True, False)]
    tasks: list[Callable[[], float]] = [
        *(partial(earn, *one) for one in tries),
        *values.pair_values(boards[0], opponents),
    ]
    results = _all(pool, tasks, tell)
    earned = dict(zip(tries, results, strict=False))
    best = np.array([max(earned[p, cell, True] + earned[p, cell, False] for cell in cells) for p in range(2)])
    return sum(results[len(tries) :]), best


def _classical(
    pool: ThreadPoolExecutor, boards: list[Board], opponents: tuple[Opponent, Opponent], tell: Tell | None
) -> tuple[float, NDArray[np.float64]]:
    def earn(player: int, known: int, cell: int) -> float:
        return classical.first_stone(boards[player], masses[player], known, cell)

    cells = range(boards[0].cells)
    known = [[0], [0, *(1 << cell for cell in cells)]]  # the second player may find the opponent's first stone
    tasks = [(p, k, cell) for p in range(2) for k in known[p] for cell in cells if k >> cell & 1 == 0]
    weigh = [partial(classical.masses_of, boards[p], opponents[1 - p]) for p in range(2)]
    masses = _all(pool, weigh, None)  # by responder
    earned = dict(zip(tasks, _all(pool, [partial(earn, *task) for task in tasks], tell), strict=True))
    after = {cell: max(earned[1, 1 << cell, c] for c in cells if c != cell) for cell in cells}
    best = [max(earned[0, 0, cell] for cell in cells), max(earned[1, 0, cell] + after[cell] for cell in cells)]
    return values.placements_value(boards[0], (masses[1], masses[0])), np.array(best)


def _all(pool: ThreadPoolExecutor, tasks: Sequence[Callable[[], _T]], tell: Tell | None) -> list[_T]:
    """Return the results of all tasks, in their order."""
    futures: list[Future[_T]] = [pool.submit(task) for task in tasks]
    left = set(futures)
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        if tell is not None:
            tell(len(tasks) - len(left), len(tasks))
    return [future.result() for future in futures]
