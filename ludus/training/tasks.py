"""Several training tasks in progress over the same workers: one of them learns while workers play for the others.

    begin all -> [ complete one -> barrier? -> begin it again ]* -> results, in the order of the tasks

Tasks that do not depend on each other give the same however many there are. Those that play against each other's newest weights go on in
step, so that these are always of the same iteration, and their barriers are one:

    [ begin all -> complete each -> barrier of all? ]* -> results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ludus.core.types import Metrics, State, TrainingResult, TrainingTask
from ludus.rollout.opponents import live_refs
from ludus.training.training import Training

Proceed = Callable[[float | None, Metrics], None]
Checkpoint = Callable[[Mapping[str, State]], None]
Keep = Callable[[TrainingTask, State], None]


@dataclass(frozen=True, slots=True)
class Barriers:
    """When barriers come inside a task: every so many iterations; with `horizon` not before one horizon has passed since the last one, so
    that one cannot cut every episode; without, at multiples of `every`, as in runs from before there was a horizon."""

    every: int
    horizon: bool = True

    def due(self, trainings: Sequence[Training]) -> bool:
        """Return whether one comes now that trainings in progress together have done an iteration more."""
        first = max(trainings, key=lambda training: training.iterations)
        if not self.horizon:
            return first.iterations % self.every == 0
        return first.since_barrier >= self.every and all(training.horizon_passed for training in trainings)


def train(
    tasks: Sequence[TrainingTask],
    *,
    make: Callable[[TrainingTask, int], Training],
    barriers: Barriers,
    proceed: Proceed,
    checkpoint: Checkpoint,
    states: Mapping[str, State],
    keep: Keep,
) -> Iterator[TrainingResult]:
    """Yield the results of `tasks`, in their order, each as soon as it and those before it are there.

    make(task, task_slot): a new training. barriers: when they come. proceed(share, metrics): called after each
    iteration; may raise to end it all. checkpoint(states): called at barriers, with the last state of each task that is not done.
    states: those of an earlier session. keep(task, state): called with the learner of a task that says so.
    """
    trainings = [make(task, task_slot) for task_slot, task in enumerate(tasks)]
    learners = {(training.task.population, training.task.policy): training for training in trainings}
    resumed = [training for training in trainings if training.task.id in states]
    for training in resumed:
        training.load_state_dict(states[training.task.id])
    for training in trainings:
        training.set_live_opponents(learners)
    for training in resumed:  # now that its opponents have their weights again
        training.offer()
    if any(plays_others(task) for task in tasks):
        _in_step(trainings, barriers=barriers, proceed=proceed, checkpoint=checkpoint)
        for training in trainings:
            yield _result(training, keep)
    else:
        yield from _independently(
            trainings, barriers=barriers, proceed=proceed, checkpoint=checkpoint, states=states, keep=keep
        )


def plays_others(task: TrainingTask) -> bool:
    """Return whether it depends on other tasks in progress."""
    return any((ref.population, ref.policy) != (task.population, task.policy) for ref in live_refs(task.opponents))


def _result(training: Training, keep: Keep) -> TrainingResult:
    if training.task.keep:
        keep(training.task, training.learner_state())
    return training.result()


def _independently(
    trainings: Sequence[Training],
    *,
    barriers: Barriers,
    proceed: Proceed,
    checkpoint: Checkpoint,
    states: Mapping[str, State],
    keep: Keep,
) -> Iterator[TrainingResult]:
    last = {training.task.id: states[training.task.id] for training in trainings if training.task.id in states}
    active = [training for training in trainings if training.finished() is None]
    for training in active:
        training.begin()
    num_yielded = 0
    while True:
        while num_yielded < len(trainings) and trainings[num_yielded] not in active:
            last.pop(trainings[num_yielded].task.id, None)
            yield _result(trainings[num_yielded], keep)
            num_yielded += 1
        if not active:
            return
        for training in list(active):
            before = training.iterations
            training.complete()
            proceed(_share(trainings), training.metrics)
            if training.iterations > before and barriers.due([training]) and _barrier(training):
                last[training.task.id] = training.state_dict()
                checkpoint(last)
            if training.finished() is None:
                training.begin()
            else:
                active.remove(training)


def _in_step(trainings: Sequence[Training], *, barriers: Barriers, proceed: Proceed, checkpoint: Checkpoint) -> None:
    """Train until all are finished. One that is finished earlier stays as it is, for the others to play against."""
    while active := [training for training in trainings if training.finished() is None]:
        before = max(training.iterations for training in active)
        for training in active:
            training.begin()
        for training in active:
            training.complete()
            proceed(_share(trainings), training.metrics)
        after = max(training.iterations for training in active)
        if after > before and barriers.due(active) and any([_barrier(training) for training in active]):  # of all
            for training in trainings:
                training.publish()  # of one that is finished the state has its newest weights, too
            checkpoint({training.task.id: training.state_dict() for training in trainings})


def _barrier(training: Training) -> bool:
    """Return whether there is something to go on with after it: what workers still owed may end the task, or spoil it."""
    if training.finished() is None:
        training.barrier()
    return training.finished() is None


def _share(trainings: Sequence[Training]) -> float | None:
    """Return the share of the work that is done; None where one of them cannot say."""
    shares = [training.fraction for training in trainings]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if len(known) == len(shares) else None
