"""Population based training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from ludus.core.config import Config
from ludus.core.errors import ConfigError
from ludus.core.parts import build_part, dump_part, with_options
from ludus.driver.scenarios.self_play import OwnPast
from ludus.schedulers.registry import TUNING_RULES
from ludus.solvers.fixed import Last

if TYPE_CHECKING:
    from ludus.schedulers.pbt import PBTScheduler

ExploreRules = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("tuning rules", v, TUNING_RULES)),
    PlainSerializer(lambda part: dump_part(part, TUNING_RULES)),
]


class Between(Config):
    """Where an option of the algorithm may lie. log: on a logarithmic scale."""

    low: float
    high: float
    log: bool = True


class PBT(OwnPast):
    """Population based training (Jaderberg et al. 2017, 2019): learners that play each other's newest weights, with options of their own;
    between generations the worst copy the best, options slightly changed.

    learners: of each population. ranges: option of the algorithm -> where it may lie, {learning_rate: {low: 1.0e-4, high: 1.0e-2}} say.
    rules: how often, how many and how much, by default as in the paper ({kind: truncation, fraction: 0.25} say).
    """

    learners: int = Field(8, ge=2)
    ranges: dict[str, Between]
    rules: ExploreRules = "truncation"

    @property
    def needs_learner(self) -> bool:
        return True

    def scheduler(self, population: tuple[int, ...]) -> PBTScheduler:
        from ludus.schedulers.pbt import PBTScheduler as Scheduler  # a scenario can be read without loading it
        from ludus.schedulers.pbt import Range

        known = type(self.algorithm).model_fields if hasattr(type(self.algorithm), "model_fields") else None
        for name in self.ranges:
            if known is not None and name not in known:
                raise ConfigError(f"ranges: the algorithm has no option {name!r}; it has {', '.join(known)}.")
            for end in (self.ranges[name].low, self.ranges[name].high):
                with_options(
                    self.algorithm, {name: end}
                )  # refuses what the algorithm would refuse in the middle of the run
        return Scheduler(
            population=population,
            chunks=self.generations,
            seed=self.seed,
            ranges={name: Range(r.low, r.high, r.log) for name, r in self.ranges.items()},
            learners=self.learners,
            rules=self.rules,
            start=self.start,
            span=self.span,
            mode=self.mode,
            sampling=self.evaluation.sampling(Last(), self.seed),
            complete=self.complete,
        )
