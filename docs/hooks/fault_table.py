"""Table of what is replaced when a process dies and what ends the run, from the restarts that the code gives to each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from option_tables import markdown_table

from ludus.cli import main as command
from ludus.core.errors import EnvError, LudusError, PartDied, PolicyError, RuntimeDied
from ludus.core.recorders import Timings
from ludus.envs.config import Environment
from ludus.evaluation.background import Evaluator
from ludus.replay.sharded import spawn_shards
from ludus.rollout.manager import RolloutManager
from ludus.runs import assembly
from ludus.runs.scenario_files import parse_scenario
from ludus.training.remote_trainer import Trainers

RESTARTS = 7
"""Of `runtime.restarts` in the scenario whose parts are asked for."""
SCENARIO = f"""
scenario: psro
env: openspiel/kuhn_poker
algorithm: ppo
runtime: {{kind: processes, restarts: {RESTARTS}, trainers: 1, table_shards: 1, inference: server}}
"""


class SpawnRecorder:
    """A `Runtime` that spawns nothing. restarts: that each kind of part was given, by its name without its number. bots: of the
    processes of the bots of workers."""

    def __init__(self) -> None:
        self.restarts: dict[str, int] = {}
        self.bots: int | None = None
        self.fetch = None

    def spawn(self, factory: Any, spec: Any, *, name: str, restarts: int = 0, **options: Any) -> str:
        self.restarts[name.rstrip("0123456789 ")] = restarts
        if hasattr(spec, "bots"):
            self.bots = spec.bots.restarts
        return name

    def call(self, *_: Any) -> None: ...

    def get(self, *_: Any) -> None: ...

    def peer(self, _: Any) -> None: ...

    def incarnation(self, _: Any) -> int:
        return 0

    def node(self, _: Any) -> str:
        return ""


def recorded_restarts() -> SpawnRecorder:
    """Return what a run's parts are given, by building them on a runtime that spawns nothing."""
    scenario, runtime = parse_scenario(SCENARIO), SpawnRecorder()
    choice, spec = scenario.runtime, scenario.env.make(num_envs=1).spec
    where: Any = runtime
    for kind in ({}, {"kind": Evaluator}):
        options: dict[str, Any] = {"spec": spec, "num_envs": 1, "inference": choice.shared, **kind}
        rollouts = assembly._rollouts(scenario, where, scenario.env.make, **options)
        assert isinstance(rollouts, RolloutManager)
        assert rollouts._servers is not None
        rollouts._servers._spawn()
    spawn_shards(where, 1)
    Trainers(where, 1, seed=0, profile=Timings())._group()
    return runtime


@dataclass(frozen=True, slots=True)
class Row:
    """process: what dies. where: the runtimes that have it. restarts: what bounds its replacements, "" where it is never replaced. again:
    what its replacement plays again. end: how the run ends, or goes on, without one."""

    process: str
    where: str
    restarts: str
    again: str
    end: str


def rows() -> list[Row]:
    """Return a row for each kind of process."""
    runtime = recorded_restarts()

    def bound(kind: str) -> str:
        count = runtime.restarts[kind]
        assert count in (0, RESTARTS), (kind, count)
        return "`runtime.restarts`" if count else ""

    dead = ends(PartDied)
    requests = (
        "the requests that it owes: whole episodes are the same again, open ones are lost with `batch_unit: decisions`"
    )
    assert runtime.bots == RESTARTS
    environment = "`env.restarts`" if Environment.model_fields["restarts"].default == 0 else ""
    return [
        Row("rollout worker", "processes, ray", bound("rollout worker"), requests, dead),
        Row("inference server", "processes, ray", bound("inference server"), "nothing: its workers ask again", dead),
        Row(
            "process of `evaluation.workers` or `evaluation.background`",
            "processes, ray",
            bound("evaluator"),
            "matches that it owes; a score that it owes is left out",
            "goes on without it",
        ),
        Row("trainer", "processes, ray", bound("trainer"), "", dead),
        Row("table shard", "processes, ray", bound("table shard"), "", dead),
        Row(
            "process of bots",
            "all",
            "`runtime.bots.restarts`, or else `runtime.restarts`",
            "the open episodes' questions",
            ends(PolicyError),
        ),
        Row(
            "subprocess of environments",
            "all",
            environment,
            "nothing: its open episodes end as truncated",
            ends(EnvError),
        ),
        Row(
            "fork server", "processes", bound("rollout worker"), "it ends with all parts, each replaced as above", dead
        ),
        Row("Ray's raylet or GCS", "ray", "", "", ends(RuntimeDied)),
        Row("the driver", "all", "", "", "as by a kill: its processes end with it"),
    ]


def ends(kind: type[LudusError]) -> str:
    """Return how a run ends with an error of this class."""
    return f"ends with exit code {command._code(kind(''))}"


def fault_table() -> str:
    """Return the table in Markdown."""
    lines: Sequence[tuple[str, ...]] = [
        (row.process, row.where, f"within {row.restarts}" if row.restarts else "no", row.again or "–", row.end)
        for row in rows()
    ]
    return markdown_table(("process", "runtimes", "replaced", "what is played again", "otherwise the run"), list(lines))
