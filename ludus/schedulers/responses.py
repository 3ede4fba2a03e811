"""Which responses a generation of PSRO trains, and against what: pure functions of a solved meta-game.

BestResponse         against the meta-strategy (Lanctot et al. 2017), or a joint one (JPSRO(CCE), Marris et al. 2021)
RecommendedResponse  one for each strategy that a joint meta-strategy recommends (JPSRO(CE), Marris et al. 2021)
RectifiedResponse    one for each supported strategy, against those that it beats or ties (PSRO_rN, Balduzzi et al. 2019)
PreferenceResponse   against α-Rank's masses (α-PSRO, Muller et al. 2020)
SequentialLeague     in turn one against the meta-strategy, and an exploiter of the newest of those (Light-MALib)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, ScenarioError, SolverError
from ludus.core.ties import TIE
from ludus.core.types import MetaSolution, Mixture, PolicyRef
from ludus.core.user_code import qualified_name, short_repr
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.normal_form import distribution, payoff_range, share_population
from ludus.metagame.solvers.registry import solution_error

Array = NDArray[np.float64]

RESPONSES = {
    "best": "ludus.schedulers.responses:BestResponse",
    "preference": "ludus.schedulers.responses:PreferenceResponse",
    "recommended": "ludus.schedulers.responses:RecommendedResponse",
    "rectified": "ludus.schedulers.responses:RectifiedResponse",
    "sequential_league": "ludus.schedulers.responses:SequentialLeague",
}
"""Which responses PSRO trains, by name -> `module:Class`; each class's fields are its options."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One response to train, in any of `seats`, against `opponents`: marginals or a joint distribution over the restricted game.

    scores: float64[n], by which the warm start `best` picks among the population's n policies.
    improves: index of the policy that training starts from, if it is of the learner's architecture; None: the warm-start rules decide.
    """

    seats: tuple[int, ...]
    opponents: MetaSolution
    scores: Array
    improves: int | None = None


@runtime_checkable
class ResponseRule(Protocol):
    """A pure function of a meta-game and its solution. `needs` is any of "two_player" and "joint" (a meta-solver that gives a joint
    distribution). Where players share a population, the payoffs are pooled over the orders of their seats, as solvers pool them."""

    needs: ClassVar[frozenset[str]]

    def targets(self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...]) -> tuple[Target, ...]:
        """Return the responses of one population, whose players are `seats`. Raises SolverError for a solution that does not suit."""
        ...


def _check_count(count: int) -> None:
    if count < 1:
        raise ConfigError(f"responses: count is {count}, expected at least 1.")


def _check_support(least: float, most: int | None) -> None:
    if not 0 <= least <= 1 or (most is not None and most < 1):
        raise ConfigError(
            f"responses: least is {least} and most {most}, expected a probability, and a number of at least 1 or none."
        )


@dataclass(frozen=True, kw_only=True)
class BestResponse:
    """`count` responses to the meta-strategy; they differ by their seeds alone."""

    needs: ClassVar[frozenset[str]] = frozenset()
    count: int = 1

    def __post_init__(self) -> None:
        _check_count(self.count)

    def targets(self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...]) -> tuple[Target, ...]:
        """A joint meta-strategy is marginalised over the responder (JPSRO(CCE)): what it recommends to the responder is not heard."""
        scores = normal_form.expected_payoffs(payoffs.mean[seats[0]], solution, seats[0])
        return (Target(seats, solution, scores),) * self.count


@dataclass(frozen=True, kw_only=True)
class RecommendedResponse:
    """For each player, and each of its strategies with a probability of at least `least`: a response to what the others play where that
    strategy is recommended. Two who share a population are told the same, so that one response serves both seats. most: at most so many
    per player, the likeliest ones."""

    needs: ClassVar[frozenset[str]] = frozenset({"joint"})
    least: float = 1e-3
    most: int | None = None

    def __post_init__(self) -> None:
        _check_support(self.least, self.most)

    def targets(self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...]) -> tuple[Target, ...]:
        """Raises SolverError for a product of marginals, where every recommendation says the same, and for players who share a
        population in a game of more than two: a response to what one seat is told would play in all of theirs."""
        if solution.joint is None:
            raise SolverError(
                "responses to recommendations need a joint meta-strategy (a correlated equilibrium); this solver gives marginals. "
                "Choose a correlated one, or respond to the meta-strategy as a whole."
            )
        out = list[Target]()
        if len(seats) > 1:
            if payoffs.num_players != 2:
                raise SolverError(
                    f"responses to recommendations are for two players who share a population, or for players who do not; here "
                    f"{len(seats)} of {payoffs.num_players} do. Set share=never, or responses: best."
                )
            both = solution.joint + solution.joint.T  # [recommended to one, played by the other]
            whole = both.sum(axis=1)
            for strategy in supported(whole / whole.sum(), least=self.least, most=self.most):
                other = both[strategy] / whole[strategy]
                conditioned = MetaSolution((other, other), np.nan)
                out.append(
                    Target(
                        seats,
                        conditioned,
                        normal_form.expected_payoffs(payoffs.mean[seats[0]], conditioned, seats[0]),
                    )
                )
            return tuple(out)
        (seat,) = seats
        for strategy in supported(solution.strategies[seat], least=self.least, most=self.most):
            conditioned = MetaSolution(None, np.nan, joint=conditional(solution.joint, seat, strategy))
            out.append(Target(seats, conditioned, normal_form.expected_payoffs(payoffs.mean[seat], conditioned, seat)))
        return tuple(out)


@dataclass(frozen=True, kw_only=True)
class RectifiedResponse:
    """Each strategy with a probability of at least `least` is improved against those that it beats or ties, weighted by the
    meta-strategy: it amplifies its strengths and ignores its weaknesses. Two players. most: at most so many, the likeliest ones."""

    needs: ClassVar[frozenset[str]] = frozenset({"two_player"})
    least: float = 1e-3
    most: int | None = None

    def __post_init__(self) -> None:
        _check_support(self.least, self.most)

    def targets(self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...]) -> tuple[Target, ...]:
        """Raises SolverError for other than two players."""
        if payoffs.num_players != 2:
            raise SolverError(f"rectified responses are defined for two players; this game has {payoffs.num_players}.")
        player, other = seats[0], 1 - seats[0]
        strategies = solution.strategies
        out = []
        for strategy in supported(strategies[player], least=self.least, most=self.most):
            against = rectified(payoffs.mean, strategies, player=player, strategy=strategy)
            marginals = (against, against) if len(seats) == 2 else _placed(strategies, other, against)
            rectified_solution = MetaSolution(marginals, np.nan)
            out.append(
                Target(
                    seats,
                    rectified_solution,
                    normal_form.expected_payoffs(payoffs.mean[player], rectified_solution, player),
                    improves=strategy,
                )
            )
        return tuple(out)


@dataclass(frozen=True, kw_only=True)
class PreferenceResponse:
    """A response to α-Rank's masses, which a learner can only train for its return: that is a preference-based best response in games
    that are won or lost (Muller et al. 2020), and a stand-in elsewhere. The warm start `best` picks by the
    preference score, which the payoffs of the restricted game give exactly."""

    needs: ClassVar[frozenset[str]] = frozenset()
    count: int = 1

    def __post_init__(self) -> None:
        _check_count(self.count)

    def targets(self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...]) -> tuple[Target, ...]:
        """`count` equal targets."""
        return (Target(seats, solution, preference_scores(payoffs, solution, seats[0])),) * self.count


@dataclass(frozen=True, kw_only=True)
class SequentialLeague:
    """Light-MALib's sequential league: a main agent, which responds to the meta-strategy over all policies, and an exploiter, which
    responds to the newest main agent, in turn. first: who is trained first. Of the policies that a population began with, the last one
    counts as a main agent."""

    needs: ClassVar[frozenset[str]] = frozenset()
    first: Literal["main", "exploiter"] = "main"

    def targets(
        self, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...], *, initial: Sequence[int] = ()
    ) -> tuple[Target, ...]:
        """Return one; whose turn it is, the size of the population tells. initial: how many policies each player's population began with
        (default: one)."""
        sizes, began = payoffs.sizes, initial or (1,) * len(payoffs.sizes)
        if self._main(sizes[seats[0]] - began[seats[0]]):
            return (Target(seats, solution, normal_form.expected_payoffs(payoffs.mean[seats[0]], solution, seats[0])),)
        newest = (max(i for i in range(n) if self._main(i - m)) for n, m in zip(sizes, began, strict=True))
        newest_solution = MetaSolution(tuple(np.eye(1, n, k)[0] for n, k in zip(sizes, newest, strict=True)), np.nan)
        return (
            Target(
                seats,
                newest_solution,
                normal_form.expected_payoffs(payoffs.mean[seats[0]], newest_solution, seats[0]),
            ),
        )

    def _main(self, number: int) -> bool:
        """Return whether the policy that is the `number`-th to be trained, counted from 0, is a main agent. -1: the last one from the
        start."""
        return number == -1 or (number >= 0 and number % 2 == (0 if self.first == "main" else 1))


def response_targets(
    rule: ResponseRule, payoffs: Payoffs, solution: MetaSolution, seats: tuple[int, ...], *, initial: Sequence[int] = ()
) -> tuple[Target, ...]:
    """Return what the rule answers, which a run can train. initial: how many policies each player's population began with (default: one).
    Raises SolverError, as the rule does, or ScenarioError for an answer that is no responses of these seats."""
    payoffs = replace(payoffs, mean=normal_form.symmetrize(payoffs))  # a response plays every seat of its population
    if isinstance(rule, SequentialLeague):
        targets = rule.targets(payoffs, solution, seats, initial=initial)
    else:
        targets = rule.targets(payoffs, solution, seats)
    if wrong := _wrong(targets, payoffs, seats):
        raise ScenarioError(f"response rule {qualified_name(rule)} answered {wrong}.")
    return tuple(targets)


def _wrong(targets: object, payoffs: Payoffs, seats: tuple[int, ...]) -> str:
    if not isinstance(targets, Sequence) or not targets or not all(isinstance(target, Target) for target in targets):
        return f"{short_repr(targets)}; expected one or several Target of ludus.schedulers.responses"
    size = payoffs.sizes[seats[0]]
    for target in targets:
        if not target.seats or not set(target.seats) <= set(seats):
            return f"a target for the seats {short_repr(target.seats)}; expected some of {list(seats)}, which the population plays"
        if wrong := solution_error(target.opponents, payoffs):
            return f"a target against {wrong}"
        if np.shape(target.scores) != (size,):
            return f"a target with scores {short_repr(target.scores)}; expected one for each of the population's {size} policies"
        if target.improves is not None and target.improves not in range(size):
            return f"a target that improves policy {short_repr(target.improves)}; expected one of 0 to {size - 1}"
    return ""


# ---------------------------------------------------------------------------------------------- mathematics


def conditional(joint: Array, player: int, strategy: int) -> Array:
    """`joint` given that `strategy` is recommended to `player`: zero elsewhere, sum 1."""
    out = np.zeros_like(joint)
    at = (slice(None),) * player + (strategy,)
    out[at] = joint[at] / joint[at].sum()
    return out


def rectified(mean: Array, strategies: tuple[Array, ...], *, player: int, strategy: int) -> Array:
    """Return float64[n_other]: the other's meta-strategy on what `strategy` beats or ties, renormalised; two players.

    To tie is to earn the value of the meta-game, which is 0 in a symmetric zero-sum game. A supported strategy of an equilibrium ties
    with something; should an inexact one beat nothing, the whole meta-strategy is returned.
    """
    table = np.moveaxis(mean[player], player, 0)
    value = strategies[player] @ table @ strategies[1 - player]
    weights = strategies[1 - player] * (table[strategy] >= value - TIE * max(payoff_range(mean), 1e-300))
    return distribution(weights) if weights.sum() > 0 else strategies[1 - player]


def preference_scores(payoffs: Payoffs, solution: MetaSolution, player: int) -> Array:
    """Return float64[n_player]: the PBR score of each strategy (Muller et al. 2020), the mass of profiles that it is preferred in.

    One population of two players: the mass of strategies that it beats. Otherwise the mass of profiles in which it would earn more than
    the profile's own strategy does. Equals (as `ludus.core.ties` has it) do not beat each other.
    """
    tie = TIE * payoff_range(payoffs.mean)
    if payoffs.num_players == 2 and share_population(payoffs):
        own_payoffs, other_payoffs = (
            np.moveaxis(table, player, 0) for table in (payoffs.mean[player], payoffs.mean[1 - player])
        )
        return np.asarray((own_payoffs > other_payoffs + tie) @ solution.strategies[1 - player])
    table = np.moveaxis(payoffs.mean[player], player, 0)
    mass = np.moveaxis(_joint(solution), player, 0)
    return np.array([(mass * (row > table + tie)).sum() for row in table])


def supported(probs: Array, *, least: float, most: int | None = None) -> list[int]:
    """Return indices with a probability above 0 and of at least `least`, or the likeliest one if there is none; rising. most: the
    likeliest."""
    likeliest = np.argsort(-probs, kind="stable")
    count = max(1, int(((probs > 0) & (probs >= least)).sum()))
    return sorted(int(i) for i in likeliest[: min(count, most or count)])


def opponents(solution: MetaSolution, populations: tuple[tuple[PolicyRef, ...], ...]) -> Mixture:
    """Return the meta-strategy as opponents for any seat: one factor per seat, or a joint one. Policies without weight are left out."""
    return Mixture(solution.factors(populations, range(len(populations))))


def _joint(solution: MetaSolution) -> Array:
    """Return float64[n_0, …, n_{P-1}]."""
    if solution.joint is not None:
        return solution.joint
    out = np.ones(())
    for probs in solution.strategies:
        out = np.multiply.outer(out, probs)
    return np.asarray(out)


def _placed(strategies: tuple[Array, ...], player: int, probs: Array) -> tuple[Array, ...]:
    return tuple(probs if p == player else old for p, old in enumerate(strategies))
