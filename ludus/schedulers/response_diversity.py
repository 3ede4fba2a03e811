"""How responses of PSRO are made to differ from the members that there are.

BehaviouralDiversity  they act otherwise: a reward for the KL divergence from the nearest member (PSD-PSRO, Yao et al. 2023)
ResponseDiversity     they earn otherwise: opponents are drawn by what takes the response's payoffs away from the hull of the members'
                      (Liu et al. 2021, "Towards unifying behavioral and response diversity")

With a weight of 0, and in a population that holds the initial policy alone, responses are those of PSRO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from ludus.algorithms.common.base import ComputedOracle
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.errors import ConfigError, ScenarioError, join_or
from ludus.core.parts import build_part, dump_part, registered_name, require, resolve_name
from ludus.core.types import AdaptiveMixture, Diversity, Mixture, PolicyRef, PolicySpec
from ludus.core.user_code import qualified_name, short_repr
from ludus.metagame.population.base import Payoffs
from ludus.policies.specs import tabulates
from ludus.schedulers.responses import Target

Array = NDArray[np.float64]

DIVERSITIES = {
    "behavioural": "ludus.schedulers.response_diversity:BehaviouralDiversity",
    "response": "ludus.schedulers.response_diversity:ResponseDiversity",
}
"""How responses are made to differ from the members, by name -> `module:Class`; each class's fields are its options."""

RULE = "ludus.rollout.opponent_rules:ResponseDiversityRule"


DiversityField = Annotated[
    Any,
    BeforeValidator(lambda v: None if v is None else build_part("diversity", v, DIVERSITIES, (DiversityRule,))),
    PlainSerializer(lambda part: None if part is None else dump_part(part, DIVERSITIES)),
]
"""A field of a schedule's options that holds a rule of diversity, or none."""


@runtime_checkable
class DiversityRule(Protocol):
    """What is added to the responses of a generation. moves: whether it moves the opponents, which other methods may do too."""

    moves: ClassVar[bool]

    def check(self, algorithm: object, policies: Sequence[PolicySpec] = ()) -> None:
        """Raise ScenarioError if this algorithm cannot be made to differ. policies: what it trains, one per population."""
        ...

    def objective(self, members: Sequence[PolicyRef]) -> Diversity | None:
        """Return what a response is told to differ from. members: of its population."""
        ...

    def opponents(
        self, target: Target, payoffs: Payoffs, populations: tuple[tuple[PolicyRef, ...], ...]
    ) -> AdaptiveMixture | None:
        """Return what it is trained against, in place of the target's mixture. populations: [P] each player's policies."""
        ...


@dataclass(frozen=True, kw_only=True)
class BehaviouralDiversity:
    """weight: of one nat of KL divergence at a decision, in rewards as the algorithm scales them (PPO: by the largest utility). smoothing:
    share of the uniform policy that members are mixed with. The initial policy, which plays at random, is none of those to differ from."""

    moves: ClassVar[bool] = False
    weight: float = 0.01
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        _require_weight("behavioural", self.weight)
        if not 0.0 < self.smoothing <= 1.0:
            raise ConfigError(
                f"behavioural diversity: smoothing is {self.smoothing}, expected a share above 0, at most 1."
            )

    def check(self, algorithm: object, policies: Sequence[PolicySpec] = ()) -> None:
        name = registered_name(algorithm, ALGORITHMS)
        if not getattr(type(algorithm), "differs", False):
            others = [
                other for other in ALGORITHMS if getattr(resolve_name("algorithm", other, ALGORITHMS), "differs", False)
            ]
            raise ScenarioError(
                f"the algorithm {name!r} has no term for behavioural diversity; use {join_or(others)}, or leave diversity out."
            )
        for spec in policies:
            if not tabulates(spec, mode="explore"):
                raise ScenarioError(
                    f"behavioural diversity compares the probabilities of actions at an observation, and the algorithm {name!r} trains "
                    f"policies of kind {spec.kind!r} that have none (memory, or actions that are no single number). Use memory=none and "
                    "an environment with discrete actions, response diversity, or leave diversity out."
                )

    def objective(self, members: Sequence[PolicyRef]) -> Diversity | None:
        if not self.weight or len(members) < 2:
            return None
        return Diversity(tuple(members[1:]), self.weight, self.smoothing)

    def opponents(
        self, target: Target, payoffs: Payoffs, populations: tuple[tuple[PolicyRef, ...], ...]
    ) -> AdaptiveMixture | None:
        return None


@dataclass(frozen=True, kw_only=True)
class ResponseDiversity:
    """weight: of a difference of the whole range of payoffs between the response and the members' hull, where the meta-strategy has 1.
    explore: share of the games that is spread evenly over all opponents."""

    moves: ClassVar[bool] = True
    weight: float = 1.0
    explore: float = 0.05

    def __post_init__(self) -> None:
        _require_weight("response", self.weight)
        if not 0.0 <= self.explore <= 1.0:
            raise ConfigError(f"response diversity: explore is {self.explore}, expected a share from 0 to 1.")

    def check(self, algorithm: object, policies: Sequence[PolicySpec] = ()) -> None:
        if isinstance(algorithm, ComputedOracle):
            raise ScenarioError(
                f"response diversity moves the opponents while a response trains, and the algorithm "
                f"{registered_name(algorithm, ALGORITHMS)!r} computes it at once. Use one that learns, such as ppo, or leave diversity out."
            )

    def objective(self, members: Sequence[PolicyRef]) -> Diversity | None:
        return None

    def opponents(
        self, target: Target, payoffs: Payoffs, populations: tuple[tuple[PolicyRef, ...], ...]
    ) -> AdaptiveMixture | None:
        """Return opponents from the target's mixture (of a joint one, its marginals)."""
        if not self.weight or payoffs.sizes[target.seats[0]] < 2:
            return None
        strategies = target.opponents.strategies
        first = {
            which: seat for seat, which in reversed(list(enumerate(payoffs.population)))
        }  # factors that move as one
        tables = [
            payoff_rows(payoffs, strategies, seats=target.seats, population=which)
            for which in sorted(first, key=first.__getitem__)
        ]
        known = [table for table in tables if table is not None]
        span = max((float(np.ptp(table)) for table in known), default=0.0)
        if not span > 0.0:
            return None  # payoffs say nothing yet
        marginals = {
            seat: (refs, probs.tolist()) for seat, (refs, probs) in enumerate(zip(populations, strategies, strict=True))
        }
        options: dict[str, Any] = {
            "tables": [None if table is None else table.tolist() for table in tables],
            "weight": self.weight / span,
            "explore": self.explore,
        }
        return AdaptiveMixture(Mixture.product(marginals), RULE, options)


def payoff_rows(
    payoffs: Payoffs, strategies: tuple[Array, ...], *, seats: tuple[int, ...], population: int
) -> Array | None:
    """Return float64[m, K]: what each of the m policies of `seats` earns against each of the K policies of `population`, while everybody
    else plays `strategies`; the mean over the pairs of seats. Rows that are not known are left out; None: there is no such pair, or no
    row."""
    pairs = [(s, q) for s in seats for q, which in enumerate(payoffs.population) if which == population and q != s]
    if not pairs:
        return None
    table = np.mean([_pair(payoffs.mean[s], strategies, s, q) for s, q in pairs], axis=0)
    table = table[np.isfinite(table).all(axis=1)]
    return table if len(table) else None


def _pair(mean: Array, strategies: tuple[Array, ...], row_player: int, column_player: int) -> Array:
    """Return float64[n_row, n_column]: the mean over what the remaining players play, of float64[n_0, …]; who is never played is not
    missed."""
    for player in reversed(range(mean.ndim)):
        if player not in (row_player, column_player):
            weights = strategies[player]
            mean = np.moveaxis(mean, player, -1)[..., weights > 0] @ weights[weights > 0]
    return mean if row_player < column_player else mean.T


def training_objective(rule: DiversityRule, members: Sequence[PolicyRef]) -> Diversity | None:
    """Return what the rule answers. Raises ScenarioError for anything that a learner cannot differ by."""
    answer = rule.objective(members)
    if answer is not None and not isinstance(answer, Diversity):
        raise ScenarioError(
            f"diversity {qualified_name(rule)} answered {short_repr(answer)} for an objective; expected a Diversity of "
            f"ludus.core.types, or None."
        )
    return answer


def diversified_opponents(
    rule: DiversityRule, target: Target, payoffs: Payoffs, populations: tuple[tuple[PolicyRef, ...], ...]
) -> AdaptiveMixture | None:
    """Return what the rule answers. Raises ScenarioError for anything that cannot be trained against."""
    answer = rule.opponents(target, payoffs, populations)
    if answer is not None and not isinstance(answer, AdaptiveMixture):
        raise ScenarioError(
            f"diversity {qualified_name(rule)} answered {short_repr(answer)} for opponents; expected an AdaptiveMixture of "
            f"ludus.core.types, or None."
        )
    return answer


def check_diversity(rule: Any, algorithm: object, policies: Sequence[PolicySpec] = (), *, moved: bool = False) -> None:
    """Raise ConfigError or ScenarioError unless a scenario's `diversity`, which may be None, fits its algorithm. policies: what the
    algorithm trains, one per population. moved: the method itself decides what the opponents are while a response trains."""
    if rule is None:
        return
    require(rule, "diversity", (DiversityRule,), DIVERSITIES)
    rule.check(algorithm, policies)
    if moved and rule.moves:
        raise ScenarioError(
            f"diversity {registered_name(rule, DIVERSITIES)!r} moves the opponents of a response, which this kind of scenario "
            f"decides itself. "
            "Use behavioural diversity here, or scenario psro."
        )


def _require_weight(kind: str, weight: float) -> None:
    if not 0.0 <= weight < np.inf:
        raise ConfigError(f"{kind} diversity: weight is {weight}, expected a number that is 0 or more.")
