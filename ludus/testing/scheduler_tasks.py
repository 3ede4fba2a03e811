"""Whether a scheduler's tasks are well formed: against the view they were made from, what was answered, and each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ludus.population.base import View
from ludus.types import Adaptive, EvaluationTask, Mixture, PolicyRef, Solution, Task, TrainingTask

__all__ = ["require_tasks"]

Name = tuple[int, str]


def require_tasks(tasks: Sequence[Task], view: View, answered: Mapping[str, Task]) -> None:
    """Raises AssertionError unless each of `tasks`, which were given out together, can be done. answered: earlier tasks by id."""
    training = [task for task in tasks if isinstance(task, TrainingTask)]
    members = {(ref.population, ref.policy) for refs in view.populations for ref in refs}
    live = {(task.population, task.policy) for task in training}
    assert len(live) == len(training), f"two tasks make the same policy: {sorted(t.policy for t in training)}"
    for task in tasks:
        if isinstance(task, EvaluationTask):
            _check_evaluation(task, view)
        else:
            _check_training(task, view, members, live)
            _check_continues(task, answered)


def _check_evaluation(task: EvaluationTask, view: View) -> None:
    sizes = view.payoffs.sizes
    for profile in task.profiles:
        inside = len(profile) == len(sizes) and all(0 <= i < n for i, n in zip(profile, sizes, strict=True))
        assert inside, f"task {task.id!r}: profile {profile} lies outside the payoff table of sizes {sizes}"
    if task.solution is not None:
        _check_solution(task.id, task.solution, sizes)


def _check_solution(task: str, solution: Solution, sizes: tuple[int, ...]) -> None:
    given = tuple(len(m) for m in solution.marginals or ()) if solution.joint is None else solution.joint.shape
    assert given == sizes, f"task {task!r}: its solution is for sizes {given}, the payoff table has {sizes}"
    for probs in solution.strategies:
        assert (probs >= 0).all(), f"task {task!r}: a probability of its solution is negative or NaN"
        assert abs(probs.sum() - 1) < 1e-6, f"task {task!r}: a meta-strategy sums to {probs.sum()}"


def _check_training(task: TrainingTask, view: View, members: set[Name], live: set[Name]) -> None:
    mine = {p for p, k in enumerate(view.payoffs.population) if k == task.population}
    assert task.seats, f"task {task.id!r} has no seats"
    assert set(task.seats) <= mine, f"task {task.id!r}: seats {task.seats} are not all of population {task.population}"
    assert (task.population, task.policy) not in members, (
        f"task {task.id!r} would make policy {task.policy!r}, which exists"
    )
    if isinstance(task.start, PolicyRef):
        assert (task.start.population, task.start.policy) in members, (
            f"task {task.id!r} starts from {task.start.policy!r}, which is in no population"
        )
    mixture = task.opponents
    if isinstance(mixture, Adaptive):
        assert mixture.rule, f"task {task.id!r}: its opponents adapt by no rule"
        mixture = mixture.start
    _check_mixture(task.id, mixture, view.payoffs.population, members, live)


def _check_mixture(
    task: str, mixture: Mixture, population: tuple[int, ...], members: set[Name], live: set[Name]
) -> None:
    seats = sorted(seat for factor in mixture.factors for seat in factor.seats)
    assert seats == list(range(len(population))), f"task {task!r}: its opponents are for seats {seats}; each seat once"
    for factor in mixture.factors:
        probs = np.array(factor.probs)
        assert len(probs) == len(factor.entries), (
            f"task {task!r}: {len(probs)} probabilities for {len(factor.entries)} entries"
        )
        assert (probs >= 0).all(), f"task {task!r}: a probability is negative or NaN"
        assert abs(probs.sum() - 1) < 1e-6, f"task {task!r}: probabilities sum to {probs.sum()}"
        assert len(set(factor.entries)) == len(factor.entries), f"task {task!r}: an opponent is listed twice"
        for entry in factor.entries:
            for seat, ref in zip(factor.seats, entry, strict=True):
                name = (ref.population, ref.policy)
                if ref.version is None:
                    assert name in live | members, f"task {task!r}: nobody trains the live opponent {ref.policy!r} now"
                else:
                    assert name in members, f"task {task!r}: opponent {ref.policy!r} is in no population"
                assert ref.population == population[seat], f"task {task!r}: {ref.policy!r} cannot play seat {seat}"


def _check_continues(task: TrainingTask, answered: Mapping[str, Task]) -> None:
    if task.continues is None:
        return
    before = answered.get(task.continues)
    assert isinstance(before, TrainingTask), (
        f"task {task.id!r} continues {task.continues!r}, which is no finished training"
    )
    assert before.keep, f"task {task.id!r} continues {task.continues!r}, which does not keep its learner"
    assert before.population == task.population, f"task {task.id!r} continues a learner of another population"
