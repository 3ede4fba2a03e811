"""What is run: the scenarios of scenarios.yaml, and every algorithm of benchmarks/traces.yaml, each in several runtimes."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import yaml

from benchmarks.machine import ROOT

Equal = Literal["bits", "driver", "rows"]
RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "inprocess": (),
    "processes": ("runtime.kind=processes", "runtime.workers=2"),
    "async": ("runtime.kind=processes", "runtime.workers=2", "runtime.mode=async"),
    "ray": ("runtime.kind=ray", "runtime.workers=2"),
    "cluster": ("runtime.kind=ray", "runtime.workers=2"),
}
"""Name -> what is changed in a scenario. ray: one for each run, on this machine; cluster: two nodes that the run joins."""
WEIGHTS = {"inprocess": 5.0, "processes": 3.0, "async": 1.0, "ray": 0.5, "cluster": 2.0}
_DEFAULT = ("inprocess", "processes", "async", "ray")
_ALGORITHMS = 0.3  # weight of each algorithm of the traces


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario in one runtime.

    Attributes:
        base: Its name in the file.
        runtime: One of `RUNTIMES`.
        settings: Of the scenario.
        equal: What is promised of a harmed run: bits; driver, bits where none of its parts was harmed; rows.
        parts: Of `parts.py`, that it uses.
        command: How it is run.
        page: Whether the page is open beside it, with viewers.
        weight: How often it is drawn.
    """

    base: str
    runtime: str
    settings: Mapping[str, Any]
    equal: Equal = "bits"
    parts: tuple[str, ...] = ()
    command: str = "train"
    page: bool = False
    weight: float = 1.0

    @property
    def name(self) -> str:
        """Its name, with the runtime."""
        return f"{self.base}/{self.runtime}"

    @property
    def has_children(self) -> bool:
        """Return whether it has processes beside the driver."""
        evaluation, env = self.settings.get("evaluation", {}), self.settings["env"]
        own = "workers" in evaluation or "workers" in env or "background" in evaluation or "bot" in self.parts
        return self.runtime != "inprocess" or own or self.command != "train"

    @property
    def text(self) -> str:
        """Its file."""
        return yaml.safe_dump(dict(self.settings), sort_keys=False)

    @property
    def changes(self) -> tuple[str, ...]:
        """Of the command line."""
        return RUNTIMES[self.runtime]


@cache
def scenarios() -> dict[str, Scenario]:
    """Return all scenarios whose packages are installed, by name."""
    document = yaml.safe_load((ROOT / "benchmarks" / "chaos" / "scenarios.yaml").read_text(encoding="utf-8"))
    found = [
        scenario
        for base, entry in document["scenarios"].items()
        for scenario in _of_entry(base, entry, document["everywhere"])
    ]
    found += _algorithms(document["everywhere"]["runtime"])
    return {scenario.name: scenario for scenario in found}


def _of_entry(base: str, entry: Mapping[str, Any], everywhere: Mapping[str, Any]) -> list[Scenario]:
    if any(importlib.util.find_spec(name) is None for name in entry.get("needs", ())):
        return []
    own = entry["settings"]
    settings = {**everywhere, **own, "runtime": {**everywhere["runtime"], **own.get("runtime", {})}}
    return [
        Scenario(
            base,
            runtime,
            settings,
            equal="rows" if runtime == "async" else entry.get("equal", "bits"),
            parts=tuple(entry.get("parts", ())),
            command=entry.get("command", "train"),
            page=entry.get("page", False),
            weight=entry.get("weight", 1.0) * WEIGHTS[runtime],
        )
        for runtime in entry.get("runtimes", _DEFAULT)
        if runtime not in ("ray", "cluster") or importlib.util.find_spec("ray") is not None
    ]


def _algorithms(runtime: Mapping[str, Any]) -> list[Scenario]:
    """Return every algorithm of the traces; where it collects decisions, a killed worker loses its open episodes."""
    document = yaml.safe_load((ROOT / "benchmarks" / "traces.yaml").read_text(encoding="utf-8"))
    everywhere, found = document["everywhere"], []
    for name, entry in document["algorithms"].items():
        task = document["tasks"][entry["task"]]
        settings = {**everywhere, **task, "algorithm": {"kind": name, **entry["settings"]}}
        settings["runtime"] = {**runtime, **everywhere["runtime"]}
        kinds = ("inprocess",) if entry["task"] == "oracle" else ("inprocess", "processes", "async")
        found += [
            Scenario(
                name,
                kind,
                settings,
                equal="rows" if kind == "async" else "driver",
                weight=_ALGORITHMS * WEIGHTS[kind],
            )
            for kind in kinds
        ]
    return found
