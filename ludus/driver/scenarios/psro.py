"""Policy-Space Response Oracles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer

from ludus.core.parts import build_part, dump_part
from ludus.driver.scenario import Scenario
from ludus.driver.scenarios.parts import Different, Solver, WarmStarts
from ludus.schedulers.registry import RESPONSES
from ludus.schedulers.warm_start import WarmStart

if TYPE_CHECKING:
    from ludus.schedulers.psro import PSROScheduler

Responses = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("response rule", v, RESPONSES)),
    PlainSerializer(lambda part: dump_part(part, RESPONSES)),
]


class PSRO(Scenario):
    """Policy-Space Response Oracles (Lanctot et al. 2017) and its family.

    meta_solver: from payoffs to meta-strategies. responses: what the new policies of a generation are trained against. order: whether all
    populations respond at once, or one after the other. warm_start: what a new policy starts from, one rule or several. diversity: how new
    policies are made to differ from the members, behavioural or response, {kind: behavioural, weight: 0.01} say. The rest is as in every
    `Scenario`.
    """

    meta_solver: Solver = "nash"
    responses: Responses = "best"
    order: Literal["simultaneous", "sequential"] = "simultaneous"
    warm_start: WarmStarts = (WarmStart(),)
    diversity: Different = None

    @property
    def moves_opponents(self) -> bool:
        """Whether the method itself moves the probabilities of opponents while a response trains."""
        return False

    def scheduler(self, population: tuple[int, ...]) -> PSROScheduler:
        from ludus.schedulers.psro import PSROScheduler  # a scenario can be read without loading what it runs on

        return PSROScheduler(**self.options(population))

    def options(self, population: tuple[int, ...]) -> dict[str, Any]:
        """Of the scheduler."""
        return {
            "solver": self.meta_solver,
            "generations": self.generations,
            "population": population,
            "seed": self.seed,
            "responses": self.responses,
            "order": self.order,
            "diversity": self.diversity,
            "warm_start": self.warm_start,
            "mode": self.mode,
            "sampling": self.evaluation.sampling(self.meta_solver, self.seed),
        }
