"""The contract of a scheduler, as checks: it is driven to its end with invented results, several times, and must not notice how."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.parts import missing
from ludus.core.types import (
    AdaptiveMixture,
    EvaluationResult,
    EvaluationTask,
    Exploitability,
    Match,
    MetaSolution,
    Mixture,
    PolicyRef,
    PolicySpec,
    State,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import Payoffs, View
from ludus.schedulers.base import Scheduler

__all__ = ["require_tasks"]

# --------------------------------------------------------------------------------------------------------------------
# Whether a scheduler's tasks are well formed: against the view they were made from, what was answered, and each
# other.

Name = tuple[int, str]


def require_tasks(tasks: Sequence[Task], view: View, answered: Mapping[str, Task]) -> None:
    """Raise AssertionError unless each of `tasks`, which were given out together, can be done. answered: earlier tasks by id."""
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


def _check_solution(task: str, solution: MetaSolution, sizes: tuple[int, ...]) -> None:
    shape = tuple(len(m) for m in solution.marginals or ()) if solution.joint is None else solution.joint.shape
    assert shape == sizes, f"task {task!r}: its solution is for sizes {shape}, the payoff table has {sizes}"
    for probs in solution.strategies:
        assert (probs >= 0).all(), f"task {task!r}: a probability of its solution is negative or NaN"
        assert abs(probs.sum() - 1) < 1e-6, f"task {task!r}: a meta-strategy sums to {probs.sum()}"


def _check_training(task: TrainingTask, view: View, members: set[Name], live: set[Name]) -> None:
    own_seats = {p for p, k in enumerate(view.payoffs.population) if k == task.population}
    assert task.seats, f"task {task.id!r} has no seats"
    assert set(task.seats) <= own_seats, (
        f"task {task.id!r}: seats {task.seats} are not all of population {task.population}"
    )
    assert (task.population, task.policy) not in members, (
        f"task {task.id!r} would make policy {task.policy!r}, which exists"
    )
    if isinstance(task.start, PolicyRef):
        assert (task.start.population, task.start.policy) in members, (
            f"task {task.id!r} starts from {task.start.policy!r}, which is in no population"
        )
    mixture = task.opponents
    if isinstance(mixture, AdaptiveMixture):
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


MakeScheduler = Callable[[], Scheduler]


def check_scheduler(
    make: MakeScheduler,
    *,
    population: tuple[int, ...] = (0, 1),
    initial: int | tuple[int, ...] = 1,
    max_tasks: int = 1000,
    everywhere: bool = False,
) -> None:
    """Check that schedulers keep the `Scheduler` contract. The invented payoffs are zero-sum, and symmetric where players share a
    population.

    - It ends: within `max_tasks` answered tasks, `next_tasks` returns nothing while nothing is in flight, and continues to.
    - It never returns more than `free` tasks; with `free` 0 it returns none and nothing changes. With `together` free and nothing in
      flight, it continues.
    - Its tasks are well formed: new ids, seats of its population, opponents that are in the view or learn at the same time, learners that
      continue from finished tasks which kept them, profiles and solutions of the payoff table's sizes.
    - Deterministic: the same results in the same order give the same tasks, for 1 and for 4 tasks in flight.
    - A result that comes twice counts once.
    - Saved anywhere and loaded into a new one (through what a checkpoint can hold), it continues the same; tasks that were in flight are
      given out again.
    - Results that come in another order than their tasks do not keep it from ending.

    Args:
        make: Returns a new scheduler at each call.
        population: [P] index of each player's population.
        initial: Policies of each population at the start, one number or one each.
        max_tasks: Most answered tasks.
        everywhere: Save and load after each result too, not only at up to six places of one run and at one of another.

    Raises:
        AssertionError: With a sentence that says what is wrong.
    """
    sizes = (initial,) * len(set(population)) if isinstance(initial, int) else initial

    def drive(free: int, **options: Any) -> list[object]:
        return _Drive(make, _World(population, sizes), free, max_tasks, **options).run()

    for free in (1, 4):
        expected = drive(free)
        assert expected, "it ended without giving any task"
        assert drive(free) == expected, f"not deterministic: two runs with {free} tasks in flight gave different tasks"
        assert drive(free, twice=True) == expected, "a result that was given twice did not count once"
        assert drive(free, idle=True) == expected, "next_tasks with free=0 changed what it gave later"
        for when in ("asked", "answered"):
            places = [set(_spread(len(expected))), {len(expected) // 2}]
            if everywhere:
                places.append(set(range(len(expected))))
            for steps in places:
                again = drive(free, restarts={(when, step) for step in steps})
                times = ", ".join(map(str, sorted(steps)))
                assert again == expected, (
                    f"saved and loaded after {times} results ({when}, {free} in flight), it went on with other tasks:\n"
                    f"{_difference(expected, again)}"
                )
    drive(4, newest_first=True)


class _Drive:
    """One run from start to end."""

    def __init__(
        self,
        make: MakeScheduler,
        world: _World,
        free: int,
        max_tasks: int,
        *,
        twice: bool = False,
        idle: bool = False,
        newest_first: bool = False,
        restarts: set[tuple[str, int]] | None = None,
    ) -> None:
        self.make, self.world, self.free, self.max_tasks = make, world, free, max_tasks
        self.twice, self.idle, self.newest_first, self.restarts = twice, idle, newest_first, restarts or set()
        self.scheduler = make()
        assert isinstance(self.scheduler, Scheduler), missing(self.scheduler, Scheduler)
        self.out: list[Task] = []
        self.answered: dict[str, object] = {}
        self.done: dict[str, Task] = {}

    def run(self) -> list[object]:
        """Return the tasks in the order that they were answered in, in a form that can be compared."""
        while self._ask():
            self._maybe_restart("asked")
            if not self.out:
                continue  # a new scheduler gives them out again
            task = self.out.pop(-1 if self.newest_first else 0)
            result = self.world.answer(task)
            self.world.record(result)
            for _ in range(2 if self.twice else 1):
                self.scheduler.on_result(result, self.world.view())
            self.answered[task.id] = _plain(task)
            self.done[task.id] = task
            assert len(self.answered) <= self.max_tasks, f"it has not ended after {self.max_tasks} tasks"
            self._maybe_restart("answered")
        assert not self.scheduler.next_tasks(self.world.view(), self.free), "it gave tasks again after it had ended"
        return list(self.answered.values())

    def _ask(self) -> bool:
        """Return whether any task is out."""
        view = self.world.view()
        if self.idle:
            assert not self.scheduler.next_tasks(view, 0), "it gave tasks with free=0"
        free = max(self.free, self.scheduler.together) - len(self.out)
        tasks = self.scheduler.next_tasks(view, free)
        assert len(tasks) <= free, f"it gave {len(tasks)} tasks where {free} were free"
        for task in tasks:
            assert task.id not in self.answered, f"task {task.id!r} was given out again after it was answered"
            assert task.id not in {t.id for t in self.out}, f"task {task.id!r} was given out twice"
            self.out.append(task)
        require_tasks(tasks, view, self.done)
        return bool(self.out)

    def _maybe_restart(self, when: Literal["asked", "answered"]) -> None:
        if (when, len(self.answered)) not in self.restarts:
            return
        self.restarts.remove((when, len(self.answered)))
        state = _through_checkpoint(self.scheduler.state_dict())
        self.scheduler = self.make()
        self.scheduler.load_state_dict(state)
        self.out = []


class _World:
    """Populations and payoffs that answer every task at once, from a hash of who plays."""

    def __init__(self, population: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        self.population = population
        self.policies = [[PolicyRef(k, f"first-{k}-{i}") for i in range(size)] for k, size in enumerate(sizes)]
        self.known: dict[tuple[int, ...], NDArray[np.float64]] = {}  # profile -> value
        self.recorded: set[str] = set()
        self._current: View | None = None

    def view(self) -> View:
        if self._current is None:
            self._current = self._view()
        return self._current

    def _view(self) -> View:
        sizes = tuple(len(self.policies[k]) for k in self.population)
        players = len(sizes)
        mean = np.full((players, *sizes), np.nan)
        for profile, value in self.known.items():
            mean.reshape(players, -1)[:, np.ravel_multi_index(profile, sizes)] = value
        exact = ~np.isnan(mean[0])
        payoffs = Payoffs(
            mean=mean,
            count=np.zeros(sizes, np.int64),
            m2=np.zeros_like(mean),
            exact=exact,
            utility_range=((-1.0, 1.0),) * players,
            population=self.population,
            zero_sum=True,
        )
        return View(tuple(tuple(refs) for refs in self.policies), payoffs)

    def value(self, profile: Sequence[int]) -> NDArray[np.float64]:
        """Return float64[P], summing to 0; it depends on one's own policy and on the set of the others'."""
        names = [self.policies[k][i].policy for k, i in zip(self.population, profile, strict=True)]
        raw = [seeding.key(0, name, *sorted(names[:p] + names[p + 1 :])) / 2**64 for p, name in enumerate(names)]
        values: NDArray[np.float64] = np.array(raw) - np.mean(raw)
        return values

    def answer(self, task: Task) -> TaskResult:
        if isinstance(task, TrainingTask):
            ref = PolicyRef(task.population, task.policy)
            average = task.opponents.start if isinstance(task.opponents, AdaptiveMixture) else None
            return TrainingResult(
                task, ref, PolicySpec("random"), {}, {"return": 0.0}, {"episodes": 1}, average=average
            )
        if task.solution is not None:
            players = len(self.population)
            return EvaluationResult(task, exploitability=Exploitability(np.full(players, 0.1), np.zeros(players)))
        profiles = task.profiles or tuple(itertools.product(*(range(len(self.policies[k])) for k in self.population)))
        return EvaluationResult(task, tuple(self._match(task.id, profile) for profile in profiles))

    def _match(self, task: str, profile: tuple[int, ...]) -> Match:
        seats = tuple(self.policies[k][i] for k, i in zip(self.population, profile, strict=True))
        mean = self.value(profile)
        return Match(f"{task}/{profile}", profile, seats, 0, mean, np.zeros_like(mean), exact=True)

    def record(self, result: TaskResult) -> None:
        if result.task.id in self.recorded:
            return
        self.recorded.add(result.task.id)
        self._current = None
        if isinstance(result, TrainingResult):
            self.policies[result.ref.population].append(result.ref)
        else:
            self.known |= {match.profile: match.mean for match in result.matches}


def _spread(count: int) -> list[int]:
    """Return up to six places in a run of `count` results: both ends, and between."""
    return sorted({0, 1, count // 3, count // 2, 2 * count // 3, count - 1} & set(range(count)))


def _difference(expected: list[object], actual: list[object]) -> str:
    for k, (a, b) in enumerate(itertools.zip_longest(expected, actual)):
        if a != b:
            return f"task {k} was {a}\nand became {b}"
    return "nothing"


def _plain(value: Any) -> object:
    """Return nested tuples that compare by value, whatever records and arrays `value` is made of."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple((f.name, _plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return (type(value).__name__, *fields)
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return tuple((key, _plain(value[key])) for key in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return "NaN" if isinstance(value, float) and np.isnan(value) else value  # no NaN equals another


def _through_checkpoint(state: State) -> State:
    """Return what comes back from a checkpoint: copies, lists for tuples. Raises AssertionError for what it cannot hold."""

    def convert(value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                assert isinstance(key, str), f"state_dict has the key {key!r} at {where}; keys must be strings"
            return {key: convert(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [convert(item, f"{where}[{k}]") for k, item in enumerate(value)]
        if isinstance(value, np.ndarray):
            assert not value.dtype.hasobject, f"state_dict has an array of objects at {where}"
            return value.copy()
        allowed = value is None or isinstance(value, bool | int | float | str)
        assert allowed, f"state_dict has a {type(value).__name__} at {where}; only arrays and JSON values can be saved"
        return value

    result: State = convert(state, "state")
    return result
