"""The part of a compiled game in which each player picks, at every information state, what one of some members would do there.

    tables of a player's members --choices_of--> Choices --solve_restricted--> RestrictedSolution (an approximate equilibrium)

This is the restricted game of extensive-form double oracle (McAleer et al. 2021, "XDO: a double oracle algorithm for extensive-form
games"). There members are deterministic, and what they leave of the game is a subset of the actions at each information state. A member
that is not leaves its mixture as one choice. Two players, zero-sum (or constant-sum).

It is solved by CFR+ (Tammelin 2014, "Solving large imperfect information games using CFR+"). With the counterfactual value q(c) of each
choice c at an information state, and σ what is played there now,

    R(c) ← max(R(c) + q(c) − Σ σ(c') q(c'), 0)        σ(c) ← R(c) / Σ R(c'), all equal where no regret is positive

player by player, and the answer is the mean of the realisation plans so far, the t-th with weight t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import ScenarioError
from ludus.core.types import RestrictedSolution
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.sweeps import gradient_two

_BLOCK = 10  # iterations, at least, from one look at the gap to the next; later a tenth of those so far


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The choices of one player.

    Attributes:
        first: int64[I_p + 1]; choices first[i] .. first[i + 1] - 1 are those of information state i.
        rows: float64[C, A], the action probabilities of each; no two of a state are equal.
    """

    first: NDArray[np.int64]
    rows: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Return C, of all information states."""
        return len(self.rows)


def distinct_choices(tables: NDArray[np.float64]) -> Choices:
    """Return the distinct rows of K members' tables float64[K, I_p, A], at each information state in the order of the members."""
    tables = np.ascontiguousarray(tables, np.float64)
    new = np.zeros(tables.shape[:2], np.bool_)
    _mark_new(tables, new)
    first = np.zeros(tables.shape[1] + 1, np.int64)
    np.cumsum(new.sum(axis=0), out=first[1:])
    return Choices(first, np.ascontiguousarray(tables.swapaxes(0, 1)[new.T]))


def solve_restricted(tree: GameTree, choices: Sequence[Choices], *, gap: float, iterations: int) -> RestrictedSolution:
    """Solve a restricted game by CFR+.

    Args:
        tree: The game, of two players, zero-sum or constant-sum.
        choices: One per player.
        gap: NashConv inside the restricted game at which it stops.
        iterations: The most iterations.

    Returns:
        The mean plans as tables, with their values.

    Raises:
        ScenarioError: The game has other than two players.

    Source:
        McAleer et al. 2021 (XDO); Tammelin 2014 (CFR+).
    """
    if tree.num_players != 2:
        raise ScenarioError(
            f"a restricted game is solved for two players; {tree.spec.id} has {tree.num_players}. Use psro with meta_solver cce."
        )
    play = _RestrictedSolver(tree, choices)
    while True:
        play.run(min(max(_BLOCK, play.iterations // 10), iterations - play.iterations))
        nash_conv = play.gap()
        if nash_conv <= gap or play.iterations >= iterations:
            return play.solution(nash_conv)


class _RestrictedSolver:
    """CFR+ in progress. Lists and tuples are by player."""

    def __init__(self, tree: GameTree, choices: Sequence[Choices]) -> None:
        forms = tree.arrays.sequences
        self._forms = tuple((form.parent, form.start, form.action) for form in forms)
        self._choices = tuple((player_choices.first, player_choices.rows) for player_choices in choices)
        self._sides = tree.sides
        self._sigma = tuple(
            1.0 / np.repeat(np.diff(player_choices.first), np.diff(player_choices.first)) for player_choices in choices
        )
        self._regret = tuple(np.zeros(player_choices.count) for player_choices in choices)
        self._plan = tuple(np.empty(form.count) for form in forms)
        self._sum = tuple(np.zeros(form.count) for form in forms)
        self._gradient = tuple(np.empty(form.count) for form in forms)
        self.iterations, self._actions = 0, tree.num_actions
        for p in range(2):
            _realize(*self._forms[p], *self._choices[p], self._sigma[p], self._plan[p])

    def run(self, count: int) -> None:
        """Run `count` more iterations."""
        _cfr_plus(
            self._forms,
            self._choices,
            self._sides,
            self._sigma,
            self._regret,
            self._plan,
            self._sum,
            self._gradient,
            self.iterations,
            count,
        )
        self.iterations += count

    def _mean(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first, second = (total / total[0] for total in self._sum)
        return first, second

    def gap(self) -> float:
        """Return the NashConv of the mean plans, deviations being among the choices."""
        mean, total = self._mean(), 0.0
        for p in range(2):
            gradient = np.zeros_like(mean[p])
            gradient_two(*self._sides[p], mean[1 - p], 1.0, gradient)
            value = float(gradient @ mean[p])
            total += _best(*self._forms[p], *self._choices[p], gradient) - value
        return total

    def solution(self, gap: float) -> RestrictedSolution:
        """Return the mean plans as tables; where a plan does not come, what is played there now."""
        mean, value, tables = self._mean(), np.empty(2), []
        for p in range(2):
            gradient = np.zeros_like(mean[p])
            gradient_two(*self._sides[p], mean[1 - p], 1.0, gradient)
            value[p] = gradient @ mean[p]
            table = np.zeros((len(self._forms[p][0]), self._actions))
            _behave(*self._forms[p][1:], *self._choices[p], self._sigma[p], mean[p], table)
            tables.append(table)
        return RestrictedSolution((tables[0], tables[1]), value, gap, self.iterations)


# --------------------------------------------------------------------------------------------------------------------
# The sweeps. parent, start, action: of `Sequences`. first, rows: of `Choices`. sigma, regret: float64[C].


@kernel
def _mark_new(tables, new):  # type: ignore[no-untyped-def]
    """Mark in bool[K, I] the rows that no member before has."""
    for i in range(tables.shape[1]):
        for k in range(tables.shape[0]):
            new[k, i] = True
            for j in range(k):
                if new[j, i] and (tables[j, i] == tables[k, i]).all():
                    new[k, i] = False
                    break


@inner
def _choice_value(c, i, start, action, rows, gradient):  # type: ignore[no-untyped-def]
    """Return q(c): what choice c earns at state i, from what its actions earn."""
    total = 0.0
    for s in range(start[i], start[i + 1]):
        total += rows[c, action[s]] * gradient[s]
    return total


@inner
def _learn(parent, start, action, first, rows, gradient, sigma, regret):  # type: ignore[no-untyped-def]
    """Take one step of CFR+, bottom-up."""
    for i in range(len(parent) - 1, -1, -1):
        value, positive = 0.0, 0.0
        for c in range(first[i], first[i + 1]):
            earned = _choice_value(c, i, start, action, rows, gradient)
            value += sigma[c] * earned
            regret[c] += earned
        for c in range(first[i], first[i + 1]):
            regret[c] = max(regret[c] - value, 0.0)
            positive += regret[c]
        for c in range(first[i], first[i + 1]):
            sigma[c] = regret[c] / positive if positive > 0.0 else 1.0 / (first[i + 1] - first[i])
        gradient[parent[i]] += value


@kernel
def _realize(parent, start, action, first, rows, sigma, plan):  # type: ignore[no-untyped-def]
    """Write the plan of playing sigma."""
    plan[0] = 1.0
    for i in range(len(parent)):
        above = plan[parent[i]]
        for s in range(start[i], start[i + 1]):
            prob = 0.0
            for c in range(first[i], first[i + 1]):
                prob += sigma[c] * rows[c, action[s]]
            plan[s] = above * prob


@kernel
def _cfr_plus(forms, choices, sides, sigma, regret, plan, total, gradient, done, count):  # type: ignore[no-untyped-def]
    """Run `count` iterations after the first `done`; what they play is added to `total`."""
    for t in range(done, done + count):
        for p in range(2):
            own, other, weight = sides[p]
            parent, start, action = forms[p]
            first, rows = choices[p]
            gradient[p].fill(0.0)
            gradient_two(own, other, weight, plan[1 - p], 1.0, gradient[p])
            _learn(parent, start, action, first, rows, gradient[p], sigma[p], regret[p])
            _realize(parent, start, action, first, rows, sigma[p], plan[p])
            for s in range(len(plan[p])):
                total[p][s] += (t + 1) * plan[p][s]


@kernel
def _best(parent, start, action, first, rows, gradient):  # type: ignore[no-untyped-def]
    """Return the most that can be earned by choices, bottom-up."""
    for i in range(len(parent) - 1, -1, -1):
        best = -np.inf
        for c in range(first[i], first[i + 1]):
            best = max(best, _choice_value(c, i, start, action, rows, gradient))
        gradient[parent[i]] += best
    return gradient[0]


@kernel
def _behave(start, action, first, rows, sigma, plan, table):  # type: ignore[no-untyped-def]
    """Write the table of a plan; sigma where the plan does not come."""
    for i in range(len(start) - 1):
        total = 0.0
        for s in range(start[i], start[i + 1]):
            total += plan[s]
        for s in range(start[i], start[i + 1]):
            if total > 0.0:
                table[i, action[s]] = plan[s] / total
            else:
                for c in range(first[i], first[i + 1]):
                    table[i, action[s]] += sigma[c] * rows[c, action[s]]
