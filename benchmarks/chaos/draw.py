"""Draws cases: the same seed and index give the same harm, scenario, options and moment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from benchmarks.chaos.scenarios import Scenario, scenarios
from benchmarks.machine import ROOT

_START = 0.2
"""Share of the moments that come before the run has written anything."""
_LAST = 0.9
"""Share of an unharmed run after which no harm comes any more: it would mostly be late."""


@dataclass(frozen=True, slots=True, eq=False)
class Harm:
    """A row of harms.yaml."""

    name: str
    action: str
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    weight: float = 1.0
    where: str = ""
    moment: str = ""
    codes: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    line: str = "error: "

    def fits(self, scenario: Scenario) -> bool:
        """Return whether it can be done to a scenario."""
        if self.where == "parts":
            return bool(scenario.parts)
        if self.where == "run":
            return scenario.command == "train"
        if self.where == "workers":  # what an experiment runs are drivers, which have no deadline
            return scenario.has_children and scenario.command in ("train", "tournament")
        if self.where == "children":
            return scenario.has_children
        return not self.where or scenario.runtime == self.where or scenario.command == self.where


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to what, and when.

    Attributes:
        seed: Of the campaign.
        index: Number of the case in it.
        phase: start, before the run has written anything; run.
        fraction: Of the time of an unharmed run until then, or of the changes that it makes to its directory.
        delay: Seconds after that.
        choice: From 0 to 1, for what can only be chosen then, such as one of the children.
    """

    seed: int
    index: int
    harm: Harm
    scenario: Scenario
    options: Mapping[str, Any]
    phase: str
    fraction: float
    delay: float
    choice: float

    @property
    def name(self) -> str:
        """How it is asked for: `--case NAME`."""
        return f"{self.seed}:{self.index}"


@cache
def harms() -> dict[str, Harm]:
    """Return all harms by name."""
    document = yaml.safe_load((ROOT / "benchmarks" / "chaos" / "harms.yaml").read_text(encoding="utf-8"))
    return {
        name: Harm(name, **{**entry, "codes": tuple(entry.get("codes", ())), "states": tuple(entry.get("states", ()))})
        for name, entry in document.items()
    }


def draw(seed: int, index: int, *, only: Collection[str] = ()) -> Case:
    """Return a case. only: names of harms, or of scenarios or runtimes, one of which it has."""
    rng = random.Random(f"chaos {seed} {index}")
    pairs = [
        (harm, scenario)
        for harm in harms().values()
        for scenario in scenarios().values()
        if harm.fits(scenario) and _chosen(harm, scenario, only)
    ]
    if not pairs:
        raise ValueError(f"no harm and scenario of {', '.join(only)}")
    fitting = list(dict.fromkeys(harm for harm, _ in pairs))
    harm = rng.choices(fitting, [harm.weight for harm in fitting])[0]
    candidates = [scenario for other, scenario in pairs if other is harm]
    scenario = rng.choices(candidates, [scenario.weight for scenario in candidates])[0]
    options = {name: rng.choice(values) for name, values in harm.options.items()}
    phase = "start" if rng.random() < _START and not harm.moment else "run"
    return Case(
        seed,
        index,
        harm,
        scenario,
        options,
        phase,
        _LAST * rng.random(),
        rng.choice((0.0, 0.0, 0.1, 0.3)),
        rng.random(),
    )


def _chosen(harm: Harm, scenario: Scenario, only: Collection[str]) -> bool:
    names = {harm.name, scenario.name, scenario.base, scenario.runtime}
    harms_only = [name for name in only if name in harms()]
    others = [name for name in only if name not in harms()]
    return (not harms_only or harm.name in harms_only) and (not others or bool(names & set(others)))
