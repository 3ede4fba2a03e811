"""check_scheduler passes a small honest scheduler and notices dishonest ones."""

import random
from dataclasses import replace

import numpy as np
import pytest

from ludus.core.types import EvaluationTask, MetaSolution, Mixture, PolicyRef, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.testing.scheduler import check_scheduler


class LastOnly:
    """Each generation: every population trains against the last policies; then the missing payoffs are filled."""

    together = 1

    def __init__(self, population=(0, 1), generations=3):
        self.population, self.generations = population, generations
        self.generation = 0
        self.queue: list[str] = []  # populations to train, or "payoffs"
        self.out: list[str] = []

    def next_tasks(self, view: View, free: int):
        if not self.queue and not self.out:
            if not view.payoffs.known.all():
                self.queue = ["payoffs"]
            elif self.generation < self.generations:
                self.generation += 1
                self.queue = [str(k) for k in sorted(set(self.population))]
        now, self.queue = self.queue[:free], self.queue[free:]
        self.out += now
        return [self.task(what, view) for what in now]

    def task(self, what: str, view: View):
        if what == "payoffs":
            return EvaluationTask(
                f"payoffs-{self.generation}",
                self.generation,
                tuple(map(tuple, np.argwhere(~view.payoffs.known).tolist())),
            )
        k = int(what)
        seats = tuple(p for p, which in enumerate(self.population) if which == k)
        last = {p: ([self.opponent(view.populations[which])], [1.0]) for p, which in enumerate(self.population)}
        name = f"{k}-{self.generation}"
        return TrainingTask(f"train-{name}", self.generation, k, seats, name, Mixture.product(last))

    def opponent(self, policies):
        known = [ref for ref in policies if not ref.policy.endswith(f"-{self.generation}")]
        return known[-1]

    def on_result(self, result, view):
        what = str(result.task.population) if isinstance(result, TrainingResult) else "payoffs"
        if what in self.out and result.task.generation == self.generation:
            self.out.remove(what)

    def state_dict(self):
        return {"generation": self.generation, "queue": [*self.out, *self.queue]}

    def load_state_dict(self, state):
        self.generation, self.queue, self.out = state["generation"], list(state["queue"]), []


@pytest.mark.parametrize("population", [(0, 1), (0, 0), (0, 1, 1)])
def test_an_honest_scheduler_passes(population):
    check_scheduler(lambda: LastOnly(population), population=population)


class IgnoresFree(LastOnly):
    def next_tasks(self, view, free):
        return super().next_tasks(view, 99)


class Endless(LastOnly):
    def next_tasks(self, view, free):
        self.generations = self.generation + 1
        return super().next_tasks(view, free)


class Loses(LastOnly):
    def state_dict(self):
        return {"generation": self.generation, "queue": self.queue}


class Repeats(LastOnly):
    def on_result(self, result, view):
        super().on_result(result, view)
        if result.task.generation == 1 and isinstance(result, TrainingResult) and self.generation == 1:
            self.queue = [str(result.task.population)]


class CountsTwice(LastOnly):
    def on_result(self, result, view):
        super().on_result(result, view)
        self.generations -= 0.5 if isinstance(result, TrainingResult) and self.generation == 1 else 0


class Random(LastOnly):
    def opponent(self, policies):
        return random.choice(list(policies))


class Unsaved(LastOnly):
    def state_dict(self):
        return {**super().state_dict(), "self": self}


class Stranger(LastOnly):
    def opponent(self, policies):
        return PolicyRef(policies[0].population, "nobody")


class WrongSeat(LastOnly):
    def task(self, what, view):
        task = super().task(what, view)
        if not isinstance(task, TrainingTask):
            return task
        return TrainingTask(task.id, task.generation, task.population, (5,), task.policy, task.opponents)


class Lonely(LastOnly):
    def opponent(self, policies):
        return PolicyRef(policies[0].population, "nobody", None)


class GoesOn(LastOnly):
    """Continues the task of the generation before, which has not kept its learner."""

    def task(self, what, view):
        task = super().task(what, view)
        before = f"train-{what}-{self.generation - 1}"
        return replace(task, continues=before) if isinstance(task, TrainingTask) and self.generation > 1 else task


class GoesOnFromNothing(LastOnly):
    def task(self, what, view):
        task = super().task(what, view)
        return replace(task, continues="nothing") if isinstance(task, TrainingTask) else task


class SolvesTooLittle(LastOnly):
    def task(self, what, view):
        task = super().task(what, view)
        solution = MetaSolution((np.ones(1), np.ones(1)), 0.0)
        return replace(task, solution=solution) if self.generation == 1 and what == "payoffs" else task


class NeverStarts(LastOnly):
    """Waits for more tasks than it says that it needs."""

    def next_tasks(self, view, free):
        return super().next_tasks(view, free) if free > 1 else []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (IgnoresFree, r"it gave 2 tasks where 1 were free"),
        (Endless, "it has not ended after 100 tasks"),
        (Loses, "saved and loaded after"),
        (Repeats, "was given out again after it was answered"),
        (CountsTwice, "given twice did not count once"),
        (Random, "not deterministic"),
        (Unsaved, "state_dict has a Unsaved at state.self"),
        (Stranger, "opponent 'nobody' is in no population"),
        (WrongSeat, r"seats \(5,\) are not all of population 0"),
        (Lonely, "nobody trains the live opponent 'nobody' now"),
        (GoesOn, "continues 'train-0-1', which does not keep its learner"),
        (GoesOnFromNothing, "continues 'nothing', which is no finished training"),
        (SolvesTooLittle, r"solution is for sizes \(1, 1\), the payoff table has \(2, 2\)"),
        (NeverStarts, "ended without giving any task"),
    ],
)
def test_the_check_notices(broken, words):
    random.seed(1)
    with pytest.raises(AssertionError, match=words):
        check_scheduler(broken, max_tasks=100)
