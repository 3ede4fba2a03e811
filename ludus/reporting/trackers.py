"""Trackers: where a run's records go besides its own folder, such as Weights & Biases, MLflow or TensorBoard.

The run commits rows to its database; a process of its own for each tracker follows the committed rows and hands them to a `Tracker`. So a
tracker that fails, hangs or is slow touches no run, and what was once sent is known after any kill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, Final, Protocol, runtime_checkable

from ludus.core.config import from_yaml
from ludus.core.errors import ConfigError
from ludus.core.packages import missing_package
from ludus.core.parts import Registry, build_part, resolve_name

TRACKERS: Final = Registry("tracker", "ludus.trackers", {"tensorboard": "ludus.reporting.tensorboard:TensorBoard"})
PYTHON = "python"
"""The option that every tracker has: the interpreter of its process, of an environment with its packages."""
GENERATIONS = "generations"
"""The axis of generations."""


@dataclass(frozen=True, slots=True)
class Point:
    """Numbers at one step of an axis. Along an axis steps rise.

    Attributes:
        number: Of this record among all that the tracker gets of the run, from 0; it is the same when a record is sent again after a kill.
        axis: Name: "generations"; a learner ("population 0"); "machine".
        unit: What a step counts: "generation", "decisions", "barrier".
        step: On the axis.
        time: Seconds since the epoch.
        values: By name, all finite.
    """

    number: int
    axis: str
    unit: str
    step: int
    time: float
    values: Mapping[str, float]

    @property
    def x(self) -> str:
        """Name of the step among all series of the run, such as "generation" or "population 0/decisions"."""
        return self.unit if self.axis == GENERATIONS else f"{self.axis}/{self.unit}"

    @property
    def series(self) -> dict[str, float]:
        """`values` by names that are unique in the run, such as "nash_conv" or "population 0/return"."""
        prefix = "" if self.axis == GENERATIONS else f"{self.axis}/"
        return {f"{prefix}{name}": value for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a generation.

    Attributes:
        number: As of a `Point`.
        name: "payoffs" or "meta_strategies".
        step: Generation.
        time: Seconds since the epoch.
        columns: Their names.
        rows: Texts and numbers; None where a number is not known.
    """

    number: int
    name: str
    step: int
    time: float
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Facts of a run that a tracker gets at each `start`.

    Attributes:
        id: Of the run: eight letters and digits, the same in all of its sessions and other ones in a copy.
        name: Of its folder, with that of its experiment before it.
        run_dir: Its folder.
        group: Name of the experiment that it belongs to; "" where it belongs to none.
        scenario: Preset or kind of scenario.
        config: Resolved scenario as nested data.
        facts: Seed, versions and the like.
        resumed: Whether this tracker has had records of it before.
    """

    id: str
    name: str
    run_dir: Path
    group: str
    scenario: str
    config: Mapping[str, Any]
    facts: Mapping[str, str]
    resumed: bool


@runtime_checkable
class Tracker(Protocol):
    """Receives the records of one run, in a process of its own. Its constructor takes the options as keywords; a dataclass has them
    checked. It may raise anything, and it may block: the run continues, and the same records come again later, to a new object.

    A class attribute `packages`, if it has one, names modules that must be importable; a new run is refused where one is not.
    """

    def start(self, run: TrackedRun) -> None:
        """Open the run there, or open it again."""
        ...

    def has(self, record: Point | Table) -> bool:
        """Return whether it was received before. Asked, after `start`, of those of the last records that were not safe before a kill; what
        it has not comes again by `log`. An answer that is always False may make copies."""
        ...

    def log(self, records: Sequence[Point | Table]) -> int:
        """Receive records, numbers rising.

        Returns:
            Number of the first record that a kill could still take back, one more than the last record where none is.
        """
        ...

    def attach(self, name: str, path: Path) -> None:
        """Receive a file, again when it has changed: "scenario.yaml", "report.html", a picture "payoffs.png", "episode.gif".

        Args:
            name: Of the file there.
            path: Where it lies.
        """
        ...

    def finish(self, state: str, cause: str) -> None:
        """Close the run there.

        Args:
            state: "finished", "failed", "stopped", "interrupted", "killed"; "running" where another process still drives it.
            cause: In one line.
        """
        ...


# --------------------------------------------------------------------------------------------------------------------
# As data: `"mlflow"`, `"wandb,project=leduc,tags=[a,b]"`, `{kind: wandb, project: leduc}`.


def parse_trackers(value: Any) -> tuple[dict[str, Any], ...]:
    """Return trackers as mappings with `kind`.

    Args:
        value: One, or a list: names, texts of `--track`, mappings; None or "none": no tracker.

    Raises:
        UnknownName: With the nearest names.
        ConfigError: For what describes none, and for one that is named twice.
    """
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    trackers = [tracker for one in listed if (tracker := _parsed(one))]
    names = [json.dumps(tracker, sort_keys=True, default=repr) for tracker in trackers]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"the tracker {twice[0]} was given twice. Leave one out.")
    return tuple(trackers)


def _parsed(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _of_text(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("kind", ""), str):
        raise ConfigError(
            f"a tracker was expected, by name, as NAME,key=value or as a mapping with `kind`; given {value!r}. `ludus list trackers` "
            "shows the names."
        )
    if not value or value.get("kind") in ("", "none"):
        return {}
    return dict(value)


def _of_text(text: str) -> dict[str, Any]:
    """Return `wandb,project=leduc,tags=[a,b]` as a mapping."""
    kind, *pairs = _split(text)
    options: dict[str, Any] = {"kind": kind}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (separator and key):
            raise ConfigError(
                f"tracker {text!r}: {pair!r} is no option; NAME,key=value was expected, as in wandb,project=leduc. Each tracker has a "
                "--track of its own."
            )
        options[key] = from_yaml(value, what=f"{key} of the tracker {kind!r}")
    return options


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def build_tracker(options: Mapping[str, Any]) -> Tracker:
    """Return the tracker that a mapping describes.

    Args:
        options: `kind` and its options.

    Raises:
        UnknownName: With the nearest names.
        ConfigError: For an option that it does not have, or a value that does not fit.
    """
    own = {name: value for name, value in options.items() if name != PYTHON}
    tracker: Tracker = build_part("tracker", own, TRACKERS, (Tracker,))
    return tracker


def check_trackers(trackers: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError for trackers whose options are wrong, or whose package is not installed."""
    from importlib.util import find_spec

    for options in trackers:
        build_tracker(options)
        if PYTHON in options:  # which may have packages that this one has not
            if which(str(options[PYTHON])) is None:
                raise ConfigError(
                    f"the tracker {options['kind']!r}: python={options[PYTHON]!r} is no program. Give the interpreter of an environment, "
                    "such as ~/venvs/mlflow/bin/python as a whole path."
                )
            continue
        tracker = resolve_name("tracker", str(options["kind"]), TRACKERS, expected=(Tracker,))
        for package in getattr(tracker, "packages", ()):
            if find_spec(package) is None:
                error = ModuleNotFoundError(name=package)
                raise missing_package(f"the tracker {options['kind']!r}", error)


def tracker_label(options: Mapping[str, Any]) -> str:
    """Return what files and messages call a tracker."""
    return str(options["kind"]).rpartition(":")[2]
