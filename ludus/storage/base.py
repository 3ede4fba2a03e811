"""What can be watched of a run, and the seam for whoever watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Curve, Metrics, Mixture, Task, TaskResult, TrainingTask

if TYPE_CHECKING:  # a command that steers a run needs none of what makes a game
    from ludus.envs.game_facts import GameFacts


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts of a run that hold from its start.

    Attributes:
        name: Of the run.
        run_dir: Its directory.
        scenario: Preset name or kind of scenario ("leduc").
        env: As the scenario names it.
        algorithm: As the scenario names it.
        seed: Of the run.
        version: Of Ludus.
        population: [P] index of each player's population.
        utility_range: [P] (least, largest) return.
        zero_sum: As of the environment.
        generations: Limit; None: none.
        seconds: Limit; None: none.
        text: Resolved scenario as YAML.
        game: What is played, without wrappers, as it was when the run began; None in runs of older versions.
    """

    name: str
    run_dir: Path
    scenario: str
    env: str
    algorithm: str
    seed: int
    version: str
    population: tuple[int, ...]
    utility_range: tuple[tuple[float, float], ...] = ()
    zero_sum: bool = False
    generations: int | None = None
    seconds: float | None = None
    text: str = ""
    game: GameFacts | None = None

    @property
    def players(self) -> int:
        """Number of players."""
        return len(self.population)


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """Record of a finished generation.

    Attributes:
        number: Of the generation, from 0.
        seconds: Wall time since the run's start, summed over resumed sessions.
        episodes: Training episodes since the run's start.
        nash_conv: Sum of `gains`; None if it was not computed.
        gains: [P] what each player's best response earns over the profile of meta-strategies.
        values: [P] that profile's returns.
        marginals: For each player a distribution over its policies: the meta-strategy of this generation; of a joint one, its marginals.
        solver_gap: `MetaSolution.gap`.
        solver_seconds: Time of the meta-solver.
        responses: [P] return of the newly trained best response (of several, of the best); NaN where none was trained.
        exact: Whether `gains` were computed on the whole game, not bounded by simulation.
        profiles: int32[k, P] of a joint meta-strategy, each player's policy, those of a probability above 0; None where the solver gives
            marginals.
        probabilities: float64[k] of these profiles.
    """

    number: int
    seconds: float
    episodes: int
    nash_conv: float | None = None
    gains: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    marginals: tuple[tuple[float, ...], ...] = ()
    solver_gap: float = float("nan")
    solver_seconds: float = 0.0
    responses: tuple[float, ...] = ()
    exact: bool = True
    profiles: NDArray[np.int32] | None = field(default=None, compare=False, repr=False)
    probabilities: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of policies per player."""
        return tuple(len(row) for row in self.marginals)

    @property
    def joint(self) -> NDArray[np.float64] | None:
        """Joint meta-strategy of a correlated solver (`ce`, `cce`, `nash_bargaining`), float64[m_0, …, m_(P-1)] over profiles of the
        players' policies, summing to 1; None where the solver gives marginals, which are then independent."""
        if self.profiles is None or self.probabilities is None:
            return None
        joint = np.zeros(self.sizes)
        joint[tuple(self.profiles.T)] = self.probabilities
        return joint


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run (or its last session) ended, including what came after the last checkpoint, which a resumed run does again.

    Attributes:
        run_dir: Of the run.
        generations: Finished ones.
        seconds: Wall time, summed over sessions.
        episodes: Training episodes.
        nash_conv: Newest; None if unknown.
        stopped_by: Reason, as a sentence.
        complete: Whether a stopper or the schedule ended it, not the user.
        report: Path of the report, if it was written.
        counters: Counts of the whole run.
        trained: Responses of the whole run.
        failures: Those of them whose training stopped early.
        failure: Why the first one did.
        places: Device and backend of each learner's newest task, with the reason.
    """

    run_dir: Path
    generations: int
    seconds: float
    episodes: int
    nash_conv: float | None
    stopped_by: str
    complete: bool = True
    report: Path | None = None
    counters: dict[str, int] = field(default_factory=dict)
    trained: int = 0
    failures: int = 0
    failure: str = ""
    places: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether no training came to its end, so that the run's policies are not trained as intended."""
        return 0 < self.trained == self.failures

    @property
    def learned_on(self) -> list[str]:
        """`places`, in one line where they are the same."""
        return merged(self.places)


def merged(places: Mapping[str, str]) -> list[str]:
    """Return where learners compute: one line, or one for each where they differ."""
    if len({*places.values()}) < 2:
        return list(places.values())[:1]
    return [f"{place} ({who})" for who, place in places.items()]


@runtime_checkable
class Observer(Protocol):
    """Observer of a run. Calls come from the driver's thread, in order, and must return quickly; an observer never changes the run."""

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        """Called when the run begins or is resumed. generation: number of generations that a resumed run already has."""
        ...

    def task_started(self, task: Task) -> None: ...

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        """A task progresses.

        Args:
            fraction: Share of the task that is done, in [0, 1]; None if unknown.
            metrics: Newest numbers, such as "episodes_per_second".
        """
        ...

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        """A training task has finished an iteration.

        Args:
            task: The task.
            curve: Returns its learning curve so far; call it only in this call, and rarely, as it costs more than the rest of it.
        """
        ...

    def task_done(self, result: TaskResult) -> None:
        """A task is done, and in the store."""
        ...

    def generation_done(self, record: GenerationRecord) -> None: ...

    def run_finished(self, summary: RunSummary) -> None: ...

    def message(self, text: str) -> None: ...

    def pace_changed(self, pace: str) -> None:
        """The user changed the pace: "paused", "at 50% of full speed"; "" at full speed again."""
        ...


class NullObserver:
    """Observer that does nothing, and a base for observers of few calls: a derived class overrides what it needs."""

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None: ...

    def task_started(self, task: Task) -> None: ...

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None: ...

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None: ...

    def task_done(self, result: TaskResult) -> None: ...

    def generation_done(self, record: GenerationRecord) -> None: ...

    def run_finished(self, summary: RunSummary) -> None: ...

    def message(self, text: str) -> None: ...

    def pace_changed(self, pace: str) -> None: ...


class Observers(NullObserver):
    """Several observers as one, called in the order given."""

    def __init__(self, *observers: Observer) -> None:
        for call in [name for name in vars(NullObserver) if not name.startswith("_")]:
            setattr(self, call, partial(_call_each, [getattr(observer, call) for observer in observers]))


def _call_each(calls: Sequence[Callable[..., None]], *arguments: Any, **named: Any) -> None:
    for call in calls:
        call(*arguments, **named)


class ActiveTasks:
    """Short description of the tasks in progress. Training tasks that began together are in progress together."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._begun = False

    def started(self, task: Task) -> None:
        together = self._tasks and not self._begun and self._joins(task)
        self._tasks = [*self._tasks, task] if together else [task]
        self._begun = False

    def progressed(self) -> None:
        self._begun = True

    def _joins(self, task: Task) -> bool:
        last = self._tasks[-1]
        return isinstance(task, TrainingTask) and isinstance(last, TrainingTask) and task.generation == last.generation

    def __str__(self) -> str:
        training = [task for task in self._tasks if isinstance(task, TrainingTask)]
        if not training:
            return "payoffs" if self._tasks else "starting"
        counts = Counter(map(learner_kind, training))
        *others, last = dict.fromkeys(
            str(task.population) for task in training
        )  # each once: a league has several of each
        several = len(counts) > 1 or len(training) > len(others) + 1
        kinds = ", ".join(
            f"{f'{count} ' if several and len(training) > 1 else ''}{kind}{'s' if count > 1 else ''}"
            for kind, count in counts.items()
        )
        if others:
            return f"{kinds} of populations {', '.join(others)} and {last}"
        return kinds if last == "0" and counts.keys() <= _ALONE else f"{kinds} of population {last}"


_KINDS_OF_ROLES = {
    "main": "main agent",
    "main_exploiter": "main exploiter",
    "league_exploiter": "league exploiter",
    "meta": "restricted-game learner",
}
_ALONE = {"self-play learner", "learner"}  # whose population, where it is the first, is the only one in most runs


def learner_kind(task: TrainingTask) -> str:
    """Return what a training task trains, in the words of its schedule: "main agent", "self-play learner", "best response"."""
    if task.role in _KINDS_OF_ROLES:
        return _KINDS_OF_ROLES[task.role]
    mixture = task.opponents if isinstance(task.opponents, Mixture) else task.opponents.start
    refs = [ref for factor in mixture.factors for entry in factor.entries for ref in entry if ref.version is None]
    if task.together or any((ref.population, ref.policy) == (task.population, task.policy) for ref in refs):
        return "self-play learner"
    alone = [len(factor.seats) for factor in mixture.factors] == [1]  # the only seat is its own
    return "learner" if refs or alone else "best response"
