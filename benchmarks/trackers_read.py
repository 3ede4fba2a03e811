"""Reads back what a tracker has of a run, by the tracker's own means, for `benchmarks.trackers`; in the tracker's environment.

python -m benchmarks.trackers_read tensorboard|mlflow|wandb FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def tensorboard(folder: Path) -> dict[str, Any]:
    """The accumulators that TensorBoard's page and scripts use."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    multiplexer = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0})
    multiplexer.AddRunsFromDirectory(str(folder / "run" / "tensorboard"))
    multiplexer.Reload()
    series: dict[str, list[tuple[int, float]]] = {}
    for run, content in multiplexer.Runs().items():
        for tag in content["scalars"]:
            series.setdefault(tag, []).extend((e.step, e.value) for e in multiplexer.Scalars(run, tag))
    tables = {(tag, e.step) for tag in ("payoffs", "meta_strategies") for e in multiplexer.Tensors("generations", tag)}
    end = multiplexer.Tensors("generations", "end")[-1].tensor_proto.string_val[0].decode()
    return {"series": series, "tables": len(tables), "end": end}


def mlflow(folder: Path) -> dict[str, Any]:
    """The one MLflow run, its metrics' histories and its artifacts."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("kills")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    series = {}
    for name in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, name)
        series[name] = [(metric.step, metric.value) for metric in history]
        assert run.data.metrics[name] == max(history, key=lambda metric: metric.step).value, name
    tables = sum(len(client.list_artifacts(run.info.run_id, name)) for name in ("payoffs", "meta_strategies"))
    return {"series": series, "tables": tables, "end": f"{run.info.status} {run.data.tags['ludus.state']}"}


def wandb(folder: Path) -> dict[str, Any]:
    """The rows of all offline files of the run; a row's step is there once over all of them."""
    from wandb.proto.wandb_internal_pb2 import Record

    from ludus.contrib.trackers.wandb import records_of

    series: dict[str, list[tuple[int, float]]] = {}
    steps, tables, ids, end = list[int](), 0, set(), ""
    for path in sorted((folder / "run" / "tracking" / "wandb").glob("offline-run-*/run-*.wandb")):
        ids.add(path.stem)
        for record in map(Record.FromString, records_of(path.read_bytes())):
            kind = record.WhichOneof("record_type")
            if kind == "exit":
                end = f"exit code {record.exit.exit_code}"
            if kind != "history":
                continue
            steps.append(record.history.step.num)
            items = [([*item.nested_key] or [item.key], json.loads(item.value_json)) for item in record.history.item]
            tables += len({names[0] for names, _ in items if names[0].startswith("tables/")})
            row = {names[0]: value for names, value in items if len(names) == 1 and isinstance(value, int | float)}
            unit = next(name for name in ("generation", *row) if name in row and name.split("/")[-1] in UNITS)
            axis = unit.rpartition("/")[0]
            for name, value in row.items():
                if name.startswith(f"{axis}/" if axis else "") and name != unit and not name.startswith("_"):
                    series.setdefault(name, []).append((int(row[unit]), value))
    assert len(ids) == 1, "one W&B run"
    assert len(steps) == len(set(steps)), "each row once"
    return {"series": series, "tables": tables, "end": end}


UNITS = ("generation", "decisions", "barrier", "version")

if __name__ == "__main__":
    sys.stdout.write(
        json.dumps({"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}[sys.argv[1]](Path(sys.argv[2])))
    )
