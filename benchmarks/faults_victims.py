"""What `benchmarks.faults` kills. A kind of victim is one entry of `VICTIMS`: how to find its processes, and what is to come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.faults_processes import children_of, is_told, program_of
from benchmarks.faults_scene import BACKGROUND, Scene

Find = Callable[[Scene], list[list[int]]]
"""Ids of processes; those of one group are killed together, and which group is chance. None while there are none."""


@dataclass(frozen=True, slots=True)
class Victim:
    """part: the class of the parts that must be there again before the run has recovered, "" if none must. nodes: of a simulated cluster
    that the run joins, by their CPUs; none: a Ray of its own. expected: whether the run goes on by itself, or ends and is resumed. changes:
    settings of the run. equal: whether it comes out equal to the bit to one that was not disturbed. pace: seconds that the run rests after
    each step, so that it is not over before the loss is noticed. large: every answer counts as a large one, which stays on the node of
    whoever gave it until somebody fetches it.
    """

    find: Find
    part: str = ""
    nodes: tuple[int, ...] = ()
    expected: Literal["recovers", "ends"] = "recovers"
    changes: tuple[str, ...] = ()
    equal: bool = True
    pace: float = 0.0
    large: bool = False


def part(name: str, *, every: bool = False) -> Find:
    """One or every part of a class."""

    def find(scene: Scene) -> list[list[int]]:
        found = scene.parts(name)
        return ([found] if found else []) if every else [[process] for process in found]

    return find


def driver(scene: Scene) -> list[list[int]]:
    """The process that the user has started."""
    assert scene.process is not None
    return [[scene.process.pid]]


def fork_server(scene: Scene) -> list[list[int]]:
    """The process that forks the parts, once the run goes."""
    assert scene.process is not None
    return [[p] for p in children_of(scene.process.pid) if is_told(p, "fork_server")] if scene.steps() else []


def service(name: str) -> Find:
    """A process of the Ray that the driver has started, once the run goes: before that, Ray ends the driver with a line of its own."""

    def find(scene: Scene) -> list[list[int]]:
        assert scene.process is not None
        if not scene.steps():
            return []
        return [[p] for p in children_of(scene.process.pid) if name in program_of(p)]

    return find


def node(scene: Scene) -> list[list[int]]:
    """A node that the driver is not on, with everything that lives there."""
    assert scene.nodes is not None
    return scene.nodes.victims()


WORKERS = ("runtime.kind=ray", "runtime.workers=2")
_PROCESSES = "runtime.kind=processes"

VICTIMS: dict[str, Victim] = {
    "worker": Victim(part("RolloutHost"), part="RolloutHost"),
    "workers": Victim(part("RolloutHost", every=True), part="RolloutHost"),
    "async-worker": Victim(part("RolloutHost"), part="RolloutHost", changes=("runtime.mode=async",), equal=False),
    "server": Victim(
        part("InferenceServer"), part="InferenceServer", changes=("runtime.inference=server",), equal=False
    ),
    "evaluator": Victim(part("Evaluator"), part="Evaluator", changes=(BACKGROUND,)),
    "rank": Victim(
        part("TrainerHost"), expected="ends", changes=("runtime.trainers=2", "runtime.tasks=1"), equal=False
    ),
    "shard": Victim(part("TableShard"), expected="ends", changes=("runtime.table_shards=2",), equal=False),
    "driver": Victim(driver, expected="ends"),
    "raylet": Victim(service("raylet"), expected="ends"),
    "gcs": Victim(service("gcs_server"), expected="ends", pace=0.15),
    "node": Victim(node, part="RolloutHost", nodes=(1, 2, 2)),
    "node-large": Victim(node, part="RolloutHost", nodes=(1, 2, 2), large=True),
    "async-node-large": Victim(
        node, part="RolloutHost", nodes=(1, 2, 2), changes=("runtime.mode=async",), equal=False, large=True
    ),
    "process": Victim(part("RolloutHost"), part="RolloutHost", changes=(_PROCESSES,)),
    "processes": Victim(part("RolloutHost", every=True), part="RolloutHost", changes=(_PROCESSES,)),
    "process-server": Victim(
        part("InferenceServer"),
        part="InferenceServer",
        changes=(_PROCESSES, "runtime.inference=server"),
        equal=False,
    ),
    "process-rank": Victim(
        part("TrainerHost"), expected="ends", changes=(_PROCESSES, "runtime.trainers=2", "runtime.tasks=1"), equal=False
    ),
    "fork-server": Victim(fork_server, part="RolloutHost", changes=(_PROCESSES,)),
    "driver-of-processes": Victim(driver, expected="ends", changes=(_PROCESSES,)),
    "last-node": Victim(node, nodes=(0, 2), expected="ends"),
}
"""By the names that the command takes. node: the others have room for its workers; last-node: nobody has."""
