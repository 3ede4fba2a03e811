"""PSRO whose opponents adapt while a response trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ludus.core.parts import build_part
from ludus.driver.scenarios.psro import PSRO
from ludus.rollout.opponent_rules import RULES

if TYPE_CHECKING:
    from ludus.schedulers.anytime import AnytimePSROScheduler


class AnytimePSRO(PSRO):
    """Anytime PSRO (McAleer et al. 2022): a response trains against a distribution over all members, which a no-regret rule moves in the
    meantime; its mean is what is announced. So exploitability should not rise.

    rule, rule_options: how it moves, `regret_matching_plus` or `hedge` (`ludus.rollout.opponent_rules`). begin: where it begins, uniform
    or at the last mean. meta_solver: of generation 0 only.
    """

    rule: str = "regret_matching_plus"
    rule_options: dict[str, Any] = Field(default_factory=dict)
    begin: Literal["uniform", "last"] = "uniform"

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def moves_opponents(self) -> bool:
        return True

    def scheduler(self, population: tuple[int, ...]) -> AnytimePSROScheduler:
        from ludus.schedulers.anytime import (
            AnytimePSROScheduler as Scheduler,  # a scenario can be read without loading it
        )

        return Scheduler(**self.options(population))

    def options(self, population: tuple[int, ...]) -> dict[str, Any]:
        """Of the scheduler."""
        build_part("rule", {"kind": self.rule, **self.rule_options}, RULES)  # refuses what there is not
        own = {"rule": self.rule, "rule_options": self.rule_options, "begin": self.begin}
        return {**super().options(population), **own}


class SelfPlayPSRO(AnytimePSRO):
    """Self-play PSRO (McAleer et al. 2022): besides, each response meets a new strategy that trains against it, and is added too.

    share_of_new: of the response's games, against the new strategy. new_mode: in which the new strategy is played as a member. Two players.
    """

    share_of_new: float = Field(0.5, ge=0, le=1)
    new_mode: str = "explore"

    def options(self, population: tuple[int, ...]) -> dict[str, Any]:
        """Of the scheduler."""
        return {**super().options(population), "share": self.share_of_new, "new_mode": self.new_mode}

    def scheduler(self, population: tuple[int, ...]) -> AnytimePSROScheduler:
        from ludus.schedulers.anytime import (
            SelfPlayPSROScheduler as Scheduler,  # a scenario can be read without loading it
        )

        return Scheduler(**self.options(population))
