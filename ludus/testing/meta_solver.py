"""`check_meta_solver`: the contract of meta-solvers as a test that users can run on their own.

from ludus.testing.meta_solver import check_meta_solver
check_meta_solver(MySolver(option=3))
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ludus.core.errors import SolverError
from ludus.core.parts import missing
from ludus.core.user_code import wrong_distribution
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.base import MetaSolution, MetaSolver
from ludus.metagame.solvers.normal_form import deviation_gains, symmetrize

NEEDS = frozenset({"two_player", "zero_sum", "symmetric"})
CLOSE = 0.01
"""A solver that reports a gap below this fraction of the payoffs' range must be near the equilibrium, where there is only one."""


def exact_view(mean: ArrayLike, *, zero_sum: bool, population: Sequence[int] | None = None) -> Payoffs:
    """Return a complete view of exact payoffs, read-only, so that a solver that writes into it is caught. mean: [P, n_0, …]."""
    table = np.array(mean, dtype=np.float64)
    players = len(table)
    count, m2, exact = (
        np.zeros(table.shape[1:], dtype=np.int64),
        np.zeros_like(table),
        np.ones(table.shape[1:], dtype=np.bool_),
    )
    for array in (table, count, m2, exact):
        array.setflags(write=False)
    bounds = tuple((float(u.min()) - 1.0, float(u.max()) + 1.0) for u in table)
    return Payoffs(table, count, m2, exact, bounds, tuple(population or range(players)), zero_sum)


def zero_sum_view(matrix: ArrayLike, *, shared: bool = False) -> Payoffs:
    """Return a two-player zero-sum view from the row player's payoffs [n_0, n_1]."""
    row = np.array(matrix, dtype=np.float64)
    return exact_view(np.stack([row, -row]), zero_sum=True, population=(0, 0) if shared else (0, 1))


ROCK_PAPER_SCISSORS = ((0.0, -1.0, 1.0), (1.0, 0.0, -1.0), (-1.0, 1.0, 0.0))
# x makes the columns equal: 2 x0 - x1 = -x0 + x1, so x = (2/5, 3/5), worth 1/5; the matrix is symmetric, so y is the same
BIASED_PENNIES = ((2.0, -1.0), (-1.0, 1.0))
# strategy 0 earns 1 more than strategy 1 whatever the others do, and 0.5 less per other player on strategy 1
_THREE = np.stack(
    [np.fromfunction(lambda *i, p=p: 1.0 * (i[p] == 0) - 0.5 * (sum(i) - i[p]), (2, 2, 2)) for p in range(3)]
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Game:
    name: str
    payoffs: Payoffs
    unique: tuple[tuple[float, ...], ...] | None = None  # the marginals of the only equilibrium

    def suits(self, needs: frozenset[str]) -> bool:
        lacks = set()
        if self.payoffs.num_players != 2:
            lacks.add("two_player")
        if not self.payoffs.zero_sum:
            lacks.add("zero_sum")
        if len(set(self.payoffs.population)) > 1:
            lacks.add("symmetric")
        return not needs & lacks


def _games() -> list[_Game]:
    third, pure, biased = (1 / 3, 1 / 3, 1 / 3), (1.0, 0.0), (0.4, 0.6)
    turned = np.array(BIASED_PENNIES)[::-1, ::-1]
    doubled = np.array(BIASED_PENNIES)[[0, 1, 1]][:, [0, 0, 1]]
    return [
        _Game("a game of one profile", zero_sum_view([[3.0]]), ((1.0,), (1.0,))),
        _Game("a game of one row", zero_sum_view([[1.0, 0.0, 2.0]]), ((1.0,), (0.0, 1.0, 0.0))),
        _Game("a game of one column", zero_sum_view([[1.0], [0.0], [2.0]]), ((0.0, 0.0, 1.0), (1.0,))),
        _Game("rock-paper-scissors", zero_sum_view(ROCK_PAPER_SCISSORS), (third, third)),
        _Game("rock-paper-scissors of one population", zero_sum_view(ROCK_PAPER_SCISSORS, shared=True), (third, third)),
        _Game("biased matching pennies", zero_sum_view(BIASED_PENNIES), (biased, biased)),
        _Game("biased matching pennies, strategies renamed", zero_sum_view(turned), (biased[::-1], biased[::-1])),
        _Game("a game with duplicated strategies", zero_sum_view(doubled)),
        _Game("a game in which nothing matters", zero_sum_view(np.zeros((3, 2)))),
        _Game("a game with huge payoffs", zero_sum_view(1e6 * np.array(BIASED_PENNIES) + 1e7), (biased, biased)),
        _Game(
            "a general-sum game", exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False), (pure[::-1],) * 2
        ),
        _Game("a three-player game", exact_view(_THREE, zero_sum=False), (pure,) * 3),
        _Game(
            "a three-player game of one population",
            exact_view(_THREE, zero_sum=False, population=(0, 0, 0)),
            (pure,) * 3,
        ),
    ]


def check_meta_solver(solver: MetaSolver, *, seed: int = 0) -> None:
    """Check that a meta-solver keeps the contract of `ludus.metagame.solvers.base`.

    Args:
        solver: The meta-solver.
        seed: Of random games.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
    """
    name = type(solver).__name__
    assert isinstance(solver, MetaSolver), f"{name} is no meta-solver: {missing(solver, MetaSolver)}."
    needs = frozenset(solver.needs)
    assert needs <= NEEDS, f"{name}.needs is {sorted(needs)}; it may hold {sorted(NEEDS)} only."
    for game in _games():
        if game.suits(needs):
            solution = _solve(solver, game.payoffs, seed=seed)
            _check_solution(name, game, solution)
            _check_same_again(solver, game, solution, seed)
            _check_warm(solver, game, solution, seed)
        elif needs & {"two_player", "zero_sum"} and "symmetric" not in needs:
            _check_refusal(solver, game, seed)
    _check_growth(solver, seed)
    _check_holes(solver, needs, seed)


def _solve(solver: MetaSolver, payoffs: Payoffs, *, seed: int, warm: Any = None) -> MetaSolution:
    return solver.solve(payoffs, warm=warm, rng=np.random.default_rng(seed))


# ---------------------------------------------------------------------------------------------- what is answered


def _check_solution(name: str, game: _Game, solution: MetaSolution) -> None:
    assert isinstance(solution, MetaSolution), (
        f"{name}.solve answers {type(solution).__name__} for {game.name}; expected a MetaSolution."
    )
    num_missing = (solution.marginals is None) + (solution.joint is None)
    assert num_missing == 1, (
        f"{name} gives {2 - num_missing} of marginals and joint for {game.name}; expected exactly one."
    )
    assert math.isnan(solution.gap) or solution.gap >= 0.0, (
        f"{name} gives the gap {solution.gap} for {game.name}; expected NaN or >= 0."
    )
    _check_plain(name, solution.warm)
    if solution.joint is not None:
        _check_distribution(f"{name}'s joint for {game.name}", solution.joint, game.payoffs.sizes)
        return
    assert solution.marginals is not None
    players = game.payoffs.num_players
    assert len(solution.marginals) == players, (
        f"{name} gives {len(solution.marginals)} marginals for {game.name}; it has {players} players."
    )
    for player, (probs, size) in enumerate(zip(solution.marginals, game.payoffs.sizes, strict=True)):
        _check_distribution(f"{name}'s marginal of player {player} for {game.name}", probs, (size,))
    for a, b in zip(range(players), range(1, players), strict=False):
        if game.payoffs.population[a] == game.payoffs.population[b]:
            same = np.array_equal(solution.marginals[a], solution.marginals[b])
            assert same, (
                f"{name} gives players {a} and {b} different marginals for {game.name}, although they share a population."
            )
    _check_gap(name, game, solution)


def _check_distribution(what: str, probs: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    wrong = wrong_distribution(probs, shape)
    assert not wrong, f"{what} is {wrong}."


def _check_gap(name: str, game: _Game, solution: MetaSolution) -> None:
    """Check that a reported gap is true, and that a small one means the equilibrium where there is only one."""
    marginals, mean = solution.marginals, symmetrize(game.payoffs)
    if marginals is None or math.isnan(solution.gap):
        return
    scale = max(float(np.ptp(mean)), 1e-12)
    true = float(deviation_gains(mean, marginals).sum())
    assert true <= solution.gap + 1e-9 * max(scale, float(np.abs(mean).max())), (
        f"{name} reports the gap {solution.gap} for {game.name}, but deviations gain {true}."
    )
    if game.unique is None or solution.gap > CLOSE * scale:
        return
    for player, (probs, right) in enumerate(zip(marginals, game.unique, strict=True)):
        off = float(np.abs(probs - np.array(right)).max())
        assert off < 10 * CLOSE, (
            f"{name} reports the small gap {solution.gap} for {game.name}, but gives player {player} {probs.tolist()}; "
            f"the only equilibrium has {list(right)}."
        )


def _check_plain(name: str, warm: Any) -> None:
    """Check that it holds arrays and JSON scalars, as checkpoints do."""
    if isinstance(warm, Mapping):
        warm = list(warm.values())
    if isinstance(warm, list | tuple):
        for item in warm:
            _check_plain(name, item)
        return
    plain = warm is None or isinstance(warm, np.ndarray | str | bool | int | float)
    assert plain, (
        f"{name}'s warm holds a {type(warm).__name__}; expected arrays, numbers, and lists or mappings of them."
    )


# ---------------------------------------------------------------------------------------------- purity


def _distributions(solution: MetaSolution) -> tuple[NDArray[np.float64], ...]:
    if solution.marginals is not None:
        return solution.marginals
    return () if solution.joint is None else (solution.joint,)


def _same(a: MetaSolution, b: MetaSolution) -> bool:
    same_gap = a.gap == b.gap or (math.isnan(a.gap) and math.isnan(b.gap))
    return same_gap and all(np.array_equal(x, y) for x, y in zip(_distributions(a), _distributions(b), strict=True))


def _check_same_again(solver: MetaSolver, game: _Game, solution: MetaSolution, seed: int) -> None:
    again = _solve(solver, game.payoffs, seed=seed)
    assert _same(solution, again), (
        f"{type(solver).__name__} answers {game.name} differently the second time, with equal rng."
    )


def _check_warm(solver: MetaSolver, game: _Game, solution: MetaSolution, seed: int) -> None:
    before = _arrays(solution.warm)
    copies = [array.copy() for array in before]
    again = _solve(solver, game.payoffs, seed=seed, warm=solution.warm)
    _check_solution(type(solver).__name__, game, again)
    unchanged = all(np.array_equal(a, b) for a, b in zip(before, copies, strict=True))
    assert unchanged, f"{type(solver).__name__} writes into the `warm` it was given for {game.name}."


def _arrays(warm: Any) -> list[NDArray[Any]]:
    if isinstance(warm, Mapping):
        warm = list(warm.values())
    if isinstance(warm, list | tuple):
        return [array for item in warm for array in _arrays(item)]
    return [warm] if isinstance(warm, np.ndarray) else []


def _check_growth(solver: MetaSolver, seed: int) -> None:
    """`warm` from a smaller game: populations grow by a policy each, as in PSRO."""
    rng, warm = np.random.default_rng(seed), None
    matrix = rng.normal(size=(6, 6))
    for size in range(1, 7):
        antisymmetric = matrix[:size, :size] - matrix[:size, :size].T
        game = _Game(f"a random game of size {size}", zero_sum_view(antisymmetric, shared="symmetric" in solver.needs))
        solution = _solve(solver, game.payoffs, seed=seed, warm=warm)
        _check_solution(type(solver).__name__, game, solution)
        warm = solution.warm


# ---------------------------------------------------------------------------------------------- refusals


def _refusal(solver: MetaSolver, payoffs: Payoffs, seed: int) -> tuple[MetaSolution | None, str]:
    """Return the answer, or None and what the SolverError says."""
    try:
        return _solve(solver, payoffs, seed=seed), ""
    except SolverError as error:
        return None, str(error)


def _check_refusal(solver: MetaSolver, game: _Game, seed: int) -> None:
    name = type(solver).__name__
    answer, message = _refusal(solver, game.payoffs, seed)
    assert answer is None, f"{name} needs {sorted(solver.needs)}, but answers {game.name} without a SolverError."
    assert message, f"{name} refuses {game.name} without a message."


def _check_holes(solver: MetaSolver, needs: frozenset[str], seed: int) -> None:
    """Check that missing entries are refused, unless the payoffs do not matter to the solver at all."""
    name, matrix = type(solver).__name__, np.array(ROCK_PAPER_SCISSORS)
    full = zero_sum_view(matrix, shared="symmetric" in needs)
    mean, exact = full.mean.copy(), full.exact.copy()
    mean[:, 1, 2], exact[1, 2] = np.nan, False
    answer, message = _refusal(solver, dataclasses.replace(full, mean=mean, exact=exact), seed)
    if answer is None:
        assert "(1, 2)" in message, f"{name} refuses a missing entry without naming its profile (1, 2): {message}"
        return
    other = zero_sum_view(matrix + np.array([[0.0], [5.0], [9.0]]) - np.array([[0.0, 3.0, 0.0]]))
    others = _solve(solver, dataclasses.replace(other, population=full.population), seed=seed)
    blind = all(np.array_equal(a, b) for a, b in zip(_distributions(answer), _distributions(others), strict=True))
    assert blind, (
        f"{name} reads the payoffs, and yet answers a game with a missing entry; expected a SolverError that names it."
    )
