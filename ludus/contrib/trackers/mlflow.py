"""MLflow: one MLflow run for each run, found again by its tag `ludus.id`.

MLflow's "latest" value of a metric is that of the largest step: a metric belongs to one axis, along which steps rise. A database keeps one
row for each (metric, timestamp, step, value), so a record that is sent again with its own time makes no copy; other stores are asked.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ludus.core.config import to_yaml
from ludus.core.errors import ConfigError
from ludus.core.packages import require
from ludus.reporting.trackers import Point, Table, TrackedRun

ID = "ludus.id"
"""The tag that an MLflow run is found by."""
_METRICS, _PARAMS = 1000, 100  # that MLflow takes in a request
_LONGEST = 500  # letters of a parameter's value that every store takes
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "interrupted": "KILLED", "killed": "KILLED"}


@dataclass(eq=False)
class MLflow:
    """A tracker for MLflow. The package's environment variables hold where an option is not given (MLFLOW_TRACKING_URI,
    MLFLOW_EXPERIMENT_NAME, MLFLOW_TRACKING_USERNAME, …).

    Attributes:
        tracking_uri: Of the server, or of a store such as sqlite:///mlflow.db.
        experiment: Name of the MLflow experiment.
        name: Of the MLflow run; the run's own by default.
        tags: Name -> value.
        artifacts: Whether tables, pictures and files are sent.
    """

    packages: ClassVar[tuple[str, ...]] = ("mlflow",)

    tracking_uri: str = ""
    experiment: str = ""
    name: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: bool = True
    _client: Any = field(default=None, init=False)
    _run: str = field(default="", init=False)
    _steps: dict[str, set[int]] = field(default_factory=dict, init=False)  # of metrics that were asked for

    def __post_init__(self) -> None:
        if re.match(r"\w+://[^/@]*:[^/@]+@", self.tracking_uri):
            raise ConfigError(
                "tracking_uri has a password, which the run's scenario would keep. Leave it out, and set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_URI."
            )

    def start(self, run: TrackedRun) -> None:
        mlflow = require("mlflow", "the tracker 'mlflow'")
        self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri or None)
        experiment = self._experiment()
        query = f"tags.`{ID}` = '{run.id}'"
        there = self._client.search_runs([experiment], query, max_results=1)
        if there:
            self._run = there[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            tags = {ID: run.id, **{f"ludus.{name}": value[:_LONGEST] for name, value in run.facts.items()}, **self.tags}
            if run.group:
                tags["ludus.experiment"] = run.group
            new = self._client.create_run(experiment, run_name=self.name or run.name, tags=tags)
            self._run = new.info.run_id
        self._parameters(dict(flat(run.config)), there[0].data.params if there else {})
        if self.artifacts:
            self._client.log_text(self._run, to_yaml(dict(run.config)), "config.yaml")

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "ludus"
        if identifier := "" if self.experiment else os.environ.get("MLFLOW_EXPERIMENT_ID", ""):
            return identifier
        known = self._client.get_experiment_by_name(name)
        if known is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run has just made it
                known = self._client.get_experiment_by_name(name)
                if known is None:
                    raise
        return str(known.experiment_id)

    def _parameters(self, config: Mapping[str, str], stored: Mapping[str, str]) -> None:
        """Log the configuration. MLflow's parameters cannot change: what a resumed run has changed becomes a tag."""
        from mlflow.entities import Param

        texts = {_key(name): value[:_LONGEST] for name, value in config.items()}
        new = [Param(name, value) for name, value in texts.items() if name not in stored]
        for some in _lists(new, _PARAMS):
            self._client.log_batch(self._run, params=some)
        for name, value in texts.items():
            if name in stored and stored[name] != value:
                self._client.set_tag(self._run, f"changed.{name}", value)

    def has(self, record: Point | Table) -> bool:
        return isinstance(record, Point) and all(record.step in self._known(name) for name in record.series)

    def _known(self, name: str) -> set[int]:
        if name not in self._steps:
            history = self._client.get_metric_history(self._run, _key(name))
            self._steps[name] = {metric.step for metric in history}
        return self._steps[name]

    def log(self, records: Sequence[Point | Table]) -> int:
        from mlflow.entities import Metric

        waiting: list[Any] = []
        for record in records:
            if isinstance(record, Table):
                self._table(record)
                continue
            at = round(record.time * 1000)
            metrics = [Metric(_key(name), value, at, record.step) for name, value in record.series.items()]
            if len(waiting) + len(metrics) > _METRICS:  # a point is sent whole
                self._send(waiting)
                waiting = []
            waiting += metrics
        self._send(waiting)
        return records[-1].number + 1

    def _send(self, metrics: Sequence[Any]) -> None:
        for some in _lists(metrics, _METRICS):
            self._client.log_batch(self._run, metrics=some)

    def _table(self, table: Table) -> None:
        if not self.artifacts:
            return
        text = io.StringIO()
        csv.writer(text).writerows([table.columns, *table.rows])
        self._client.log_text(self._run, text.getvalue(), f"{table.name}/generation-{table.step:05d}.csv")

    def attach(self, name: str, path: Path) -> None:
        if self.artifacts:
            folder = str(Path(name).parent)
            self._client.log_artifact(self._run, str(path), None if folder == "." else folder)

    def finish(self, state: str, cause: str) -> None:
        self._client.set_tag(self._run, "ludus.state", state)
        self._client.set_tag(self._run, "ludus.cause", cause[:_LONGEST])
        if state in _STATUS:
            self._client.set_terminated(self._run, status=_STATUS[state])


def _key(name: str) -> str:
    """Return a name of the letters that every store takes."""
    return re.sub(r"[^\w./ -]", "_", name).replace("..", "_").strip("/ ")[:250]


def _lists(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of at most `size` values."""
    values = list(values)
    for first in range(0, len(values), size):
        yield values[first : first + size]


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested data as (dotted name, text)."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else to_yaml(value).removesuffix("...\n").strip()
