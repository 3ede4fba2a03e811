"""Tasks and solutions as checkpoint state: arrays and JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from ludus.types import EvaluationTask, Mixture, Solution, State, Task, TrainingTask

_TRAINING = TypeAdapter(TrainingTask)
_MIXTURE = TypeAdapter(Mixture)


def pack_solution(solution: Solution) -> State:
    """Field by field; arrays as they are."""
    return {f.name: getattr(solution, f.name) for f in dataclasses.fields(solution)}


def unpack_solution(state: Mapping[str, Any]) -> Solution:
    """What `pack_solution` packed."""
    marginals = state["marginals"]
    return Solution(
        None if marginals is None else tuple(marginals), float(state["gap"]), joint=state["joint"], warm=state["warm"]
    )


def pack_task(task: Task) -> State:
    """Under "training" or "evaluation"."""
    if isinstance(task, TrainingTask):
        return {"training": _TRAINING.dump_python(task, mode="json")}
    solution = None if task.solution is None else pack_solution(task.solution)
    return {
        "evaluation": {
            "id": task.id,
            "generation": task.generation,
            "profiles": [list(p) for p in task.profiles],
            "solution": solution,
        }
    }


def unpack_task(state: State) -> Task:
    """What `pack_task` packed."""
    if "training" in state:
        return _TRAINING.validate_python(state["training"])
    fields = state["evaluation"]
    solution = None if fields["solution"] is None else unpack_solution(fields["solution"])
    profiles = tuple(tuple(int(i) for i in p) for p in fields["profiles"])
    return EvaluationTask(str(fields["id"]), int(fields["generation"]), profiles, solution)


def pack_mixture(mixture: Mixture) -> State:
    """As JSON values."""
    packed: State = _MIXTURE.dump_python(mixture, mode="json")
    return packed


def unpack_mixture(state: Mapping[str, Any]) -> Mixture:
    """What `pack_mixture` packed."""
    return _MIXTURE.validate_python(state)
