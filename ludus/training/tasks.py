"""Several training tasks in progress over the same workers: one of them learns while workers play for the others.

    begin all -> [ complete one -> barrier? -> begin it again ]* -> results, in the order of the tasks

No task depends on another's, so what each of them gives does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ludus.training.training import Training
from ludus.types import Metrics, State, Trained, TrainingTask


def train(
    tasks: Sequence[TrainingTask],
    *,
    make: Callable[[TrainingTask, int], Training],
    every: int,
    proceed: Callable[[float | None, Metrics], None],
    checkpoint: Callable[[Mapping[str, State]], None],
    states: Mapping[str, State],
) -> Iterator[Trained]:
    """The results of `tasks`, in their order, each as soon as it and those before it are there.

    make(task, lane): a new training. every: iterations of a task between its barriers. proceed(share, metrics): called after each
    iteration; may raise to end it all. checkpoint(states): called at barriers, with the last state of each task that is not done.
    states: those of an earlier session.
    """
    trainings = [make(task, lane) for lane, task in enumerate(tasks)]
    last = {task.id: states[task.id] for task in tasks if task.id in states}
    for training in trainings:
        if training.task.id in last:
            training.load_state_dict(last[training.task.id])
    active = [training for training in trainings if training.finished() is None]
    for training in active:
        training.begin()
    given = 0
    while True:
        while given < len(trainings) and trainings[given] not in active:
            last.pop(tasks[given].id, None)
            yield trainings[given].result()
            given += 1
        if not active:
            return
        for training in list(active):
            before = training.iterations
            training.complete()
            proceed(_share(trainings), training.metrics)
            if training.iterations > before and training.iterations % every == 0 and _barrier(training):
                last[training.task.id] = training.state_dict()
                checkpoint(last)
            if training.finished() is None:
                training.begin()
            else:
                active.remove(training)


def _barrier(training: Training) -> bool:
    """Whether there is something to go on with after it: what workers still owed may end the task, or spoil it."""
    if training.finished() is None:
        training.barrier()
    return training.finished() is None


def _share(trainings: Sequence[Training]) -> float | None:
    """Of the work that is done; None where one of them cannot say."""
    shares = [training.fraction for training in trainings]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if len(known) == len(shares) else None
