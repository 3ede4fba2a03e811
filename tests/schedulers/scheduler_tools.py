"""What the tests of schedulers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ludus.core.types import EvaluationResult, Mixture, PolicyRef, PolicySpec, Task, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.schedulers.base import Scheduler


def answered(
    scheduler: Scheduler,
    tasks: Sequence[Task],
    now: View,
    averages: Mapping[str, Mixture] | None = None,
    **counters: int,
) -> None:
    """Tells the scheduler that these are done. averages: of the mixtures that moved, by task."""
    for task in tasks:
        if isinstance(task, TrainingTask):
            ref, average = PolicyRef(task.population, task.policy), (averages or {}).get(task.id)
            scheduler.on_result(TrainingResult(task, ref, PolicySpec("random"), {}, {}, counters, average=average), now)
        else:
            scheduler.on_result(EvaluationResult(task), now)
