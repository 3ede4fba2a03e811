"""The kinds of scenarios: the options of each schedule as keys of a scenario, and the scheduler that takes them."""

from __future__ import annotations

from typing import Final

from ludus.metagame.solvers.fixed import Last, Uniform
from ludus.runs.scenario import Scenario
from ludus.schedulers.anytime import (
    AnytimePSROOptions,
    AnytimePSROScheduler,
    SelfPlayPSROOptions,
    SelfPlayPSROScheduler,
)
from ludus.schedulers.efficient import EfficientPSROOptions, EfficientPSROScheduler
from ludus.schedulers.fixed_opponents import FixedOpponentsOptions, FixedOpponentsScheduler
from ludus.schedulers.league import LeagueOptions, LeagueScheduler
from ludus.schedulers.neupl import NeuPLOptions, NeuPLScheduler
from ludus.schedulers.odo import ODOOptions, ODOScheduler
from ludus.schedulers.pbt import PBTOptions, PBTScheduler
from ludus.schedulers.pipeline import PipelinePSROOptions, PipelinePSROScheduler
from ludus.schedulers.psro import PSROOptions, PSROScheduler
from ludus.schedulers.self_play import FictitiousSelfPlayOptions, PFSPOptions, SelfPlayOptions, SelfPlayScheduler
from ludus.schedulers.xdo import XDOOptions, XDOScheduler


class PSRO(PSROOptions, Scenario, kind="psro"):
    """Policy-Space Response Oracles and their family; see `PSROOptions`.

    Attributes:
        meta_solver, responses, order: See `PSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PSROScheduler:
        return PSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class AnytimePSRO(AnytimePSROOptions, Scenario, kind="anytime_psro"):
    """PSRO whose opponents adapt while a response trains; see `AnytimePSROOptions`.

    Attributes:
        rule, rule_options, begin: See `MovedMixtureOptions`; those of `PSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> AnytimePSROScheduler:
        return AnytimePSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class SelfPlayPSRO(SelfPlayPSROOptions, Scenario, kind="self_play_psro"):
    """Anytime PSRO with a new strategy that trains against the response; see `SelfPlayPSROOptions`.

    Attributes:
        share_of_new, new_mode: See `SelfPlayPSROOptions`; those of `AnytimePSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayPSROScheduler:
        return SelfPlayPSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class EfficientPSRO(EfficientPSROOptions, Scenario, kind="efficient_psro"):
    """PSRO without payoffs; see `EfficientPSROOptions`.

    Attributes:
        levels, rule, rule_options, begin: See `EfficientPSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> EfficientPSROScheduler:
        return EfficientPSROScheduler(self, population=population)


class PipelinePSRO(PipelinePSROOptions, Scenario, kind="pipeline_psro"):
    """PSRO whose generations train at the same time; see `PipelinePSROOptions`.

    Attributes:
        meta_solver, levels, least, most, improvement, start, diversity: See `PipelinePSROOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PipelinePSROScheduler:
        return PipelinePSROScheduler(self, population=population, selection=self._selection(self.meta_solver))


class NeuPL(NeuPLOptions, Scenario, kind="neupl"):
    """One network for a whole population; see `NeuPLOptions`.

    Attributes:
        policies, meta_solver, cells: See `NeuPLOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> NeuPLScheduler:
        return NeuPLScheduler(self, population=population, selection=self._selection(self.meta_solver))


class ODO(ODOOptions, Scenario, kind="odo"):
    """Online double oracle; see `ODOOptions`.

    Attributes:
        rounds, average, begin, improvement: See `ODOOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> ODOScheduler:
        return ODOScheduler(self, population=population, selection=self._selection(Uniform()))


class XDO(XDOOptions, Scenario, kind="xdo"):
    """Extensive-form double oracle; see `XDOOptions`.

    Attributes:
        tolerance, fall, iterations, cells: See `XDOOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> XDOScheduler:
        return XDOScheduler(self, population=population, selection=self._selection(Last()))


class SelfPlay(SelfPlayOptions, Scenario, kind="self_play"):
    """Self-play; see `SelfPlayOptions`.

    Attributes:
        latest, every_seat, past, meta_solver, cells, span, start: See `SelfPlayOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(
            self,
            population=population,
            selection=self._selection(self.meta_solver),
            modes=self._learner_modes(population),
        )


class FictitiousSelfPlay(FictitiousSelfPlayOptions, Scenario, kind="fictitious_self_play"):
    """Fictitious self-play over snapshots; see `FictitiousSelfPlayOptions`.

    Attributes:
        meta_solver, cells, span, start: See `FictitiousSelfPlayOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(self, population=population, selection=self._selection(self.meta_solver))


class PFSP(PFSPOptions, Scenario, kind="pfsp"):
    """Prioritised fictitious self-play; see `PFSPOptions`.

    Attributes:
        latest, weighting, meta_solver, cells, span, start: See `PFSPOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> SelfPlayScheduler:
        return SelfPlayScheduler(
            self,
            population=population,
            selection=self._selection(self.meta_solver),
            modes=self._learner_modes(population),
        )


class FixedOpponents(FixedOpponentsOptions, Scenario, kind="fixed_opponents"):
    """Plain (multi-agent) reinforcement learning; see `FixedOpponentsOptions`.

    Attributes:
        learners, opponents, start: See `FixedOpponentsOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> FixedOpponentsScheduler:
        return FixedOpponentsScheduler(self, population=population, selection=self._selection(Last()))


class League(LeagueOptions, Scenario, kind="league"):
    """A league of main agents and exploiters; see `LeagueOptions`.

    Attributes:
        main, main_exploiters, league_exploiters, rules, decay, meta_solver, start: See `LeagueOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> LeagueScheduler:
        return LeagueScheduler(self, population=population, selection=self._selection(self.meta_solver or Last()))


class PBT(PBTOptions, Scenario, kind="pbt"):
    """Population based training; see `PBTOptions`.

    Attributes:
        learners, ranges, rules: See `PBTOptions`; and those of `Scenario`.
    """

    def scheduler(self, population: tuple[int, ...]) -> PBTScheduler:
        return PBTScheduler(self, population=population, selection=self._selection(Last()))


_KINDS: tuple[type[Scenario], ...] = (
    AnytimePSRO,
    EfficientPSRO,
    FictitiousSelfPlay,
    FixedOpponents,
    League,
    NeuPL,
    ODO,
    PBT,
    PFSP,
    PipelinePSRO,
    PSRO,
    SelfPlay,
    SelfPlayPSRO,
    XDO,
)
SCENARIOS: Final[dict[str, str]] = {kind.kind: f"{kind.__module__}:{kind.__qualname__}" for kind in _KINDS}
"""name -> `module:Class`; each class is a `Scenario`, and its fields are the keys of the file."""
