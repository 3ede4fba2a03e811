"""Efficient PSRO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ludus.core.errors import ScenarioError
from ludus.core.parts import build_part
from ludus.driver.scenario import Scenario
from ludus.driver.scenarios.parts import Different, WarmStarts
from ludus.rollout.opponent_rules import RULES
from ludus.schedulers.warm_start import WarmStart

if TYPE_CHECKING:
    from ludus.schedulers.efficient import EfficientPSROScheduler


class EfficientPSRO(Scenario):
    """Efficient PSRO (Zhou et al. 2022): a response trains against a mixture of all members, which a no-regret rule moves by the same
    episodes; its mean is what is announced. No match is played for payoffs, so that there is no meta-game and no meta-solver.

    levels: of such games that are played at once; each also meets the live responses of those below it. rule, rule_options: how the
    mixture moves, `hedge` or `regret_matching_plus` (`ludus.rollout.opponent_rules`). begin: where it begins, uniform or at the
    last mean. warm_start,
    diversity: as in psro, where they need no payoffs. Two players.
    """

    levels: int = Field(1, ge=1)
    rule: str = "hedge"
    rule_options: dict[str, Any] = Field(default_factory=dict)
    begin: Literal["uniform", "last"] = "uniform"
    warm_start: WarmStarts = (WarmStart(),)
    diversity: Different = None

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def moves_opponents(self) -> bool:
        return True

    def scheduler(self, population: tuple[int, ...]) -> EfficientPSROScheduler:
        from ludus.schedulers.efficient import (
            EfficientPSROScheduler as Scheduler,  # a scenario can be read without loading it
        )

        if self.evaluation.adaptive is not None:
            raise ScenarioError(
                "efficient_psro plays no match for payoffs, so that evaluation.adaptive would do nothing. Leave it out, or use scenario "
                "psro."
            )
        build_part("rule", {"kind": self.rule, **self.rule_options}, RULES)  # refuses what there is not
        return Scheduler(
            generations=self.generations,
            population=population,
            seed=self.seed,
            levels=self.levels,
            rule=self.rule,
            rule_options=self.rule_options,
            begin=self.begin,
            warm_start=self.warm_start,
            diversity=self.diversity,
            mode=self.mode,
        )
