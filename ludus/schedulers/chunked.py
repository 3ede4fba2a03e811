"""What schedulers whose learners go on from chunk to chunk have in common.

    repeat
        cells that matter and are missing ── EvaluationTask(profiles) ──► matches
        announce the meta-strategies      ── EvaluationTask(solution) ──► exploitability
        chunks done?                      stop
        a chunk of training of each learner ── TrainingTask(continues) ──► a snapshot, which is a member from now on

A chunk is a barrier: learners that play each other's live weights train together, and all of them finish it. What a learner is and has
is then nothing but results, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from ludus.core.errors import ConfigError, RunError
from ludus.core.types import Mixture, PolicyRef, State, Task, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.metagame.population.payoffs import Places
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.match_selection import PolicyProfile
from ludus.schedulers.config import PlayMode, ScheduleContext, ScheduleOptions
from ludus.schedulers.payoff_tasks import MatchSelection, PayoffTasks
from ludus.schedulers.planning import PlanningScheduler, announcement, one_task_per_group
from ludus.schedulers.win_rates import return_ranges

Start = PolicyRef | str | None


class Source(TypedDict):
    """Two fields of a `TrainingTask`."""

    continues: str | None
    start: Start


class ChunkedOptions(ScheduleOptions):
    """Options of learners that train in chunks, one a generation.

    Attributes:
        generations: Chunks of training of each learner.
        mode: How snapshots are played; the learners they came from explore.
        start: The file of a policy that each learner starts from.
    """

    start: str | None = None

    @property
    def chunks(self) -> int:
        """Chunks of training that there may be at most."""
        return self.generations

    @property
    def complete(self) -> bool:
        """Whether the game among all policies is solved after each chunk, also if the next one does not need that."""
        return False

    @property
    def asks_for_all(self) -> bool:
        return self.complete

    def meets_first(self, population: Sequence[int]) -> bool:
        return self.complete

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if self.start is not None:
            context.check_file("start", self.start)


class OwnPastOptions(ChunkedOptions):
    """What self-play and its kin have in common. A learner goes on from generation to generation; each adds a snapshot of it to its
    population.

    Attributes:
        mode: How snapshots are played.
        cells: Which payoffs are computed, those that the schedule reads (needed), or all.
        span: Returns that count as a clear defeat and a clear victory, where win rates are read; by default the least and the largest
            return of the game, which in poker are so rare that all rates are near one half.
    """

    mode: PlayMode = "explore"
    cells: Literal["needed", "all"] = "needed"
    span: tuple[float, float] | None = None

    @property
    def complete(self) -> bool:
        return self.cells == "all"

    @property
    def reads_rates(self) -> bool:
        """Whether win rates are read, where there are opponents."""
        return False

    def meets_first(self, population: Sequence[int]) -> bool:
        """Return whether it does, also by win rates against the past, which begins with them, where all others in a match are of one
        population."""
        pairs = len(population) == 2 or len(set(population)) == 1
        return super().meets_first(population) or (self.reads_rates and pairs)

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        if self.reads_rates and context.env.num_players > 1:
            return_ranges(context.env.utility_range, self.span)


class ChunkedScheduler(PlanningScheduler):
    """State beyond the tasks: how many chunks are done. `together`: learners that play each other's live weights."""

    options: ChunkedOptions

    def __init__(
        self, options: ChunkedOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """population: [P] index of each player's population. selection: what is played after a chunk, by default every hole."""
        super().__init__(population)
        self.options, self.payoffs = options, PayoffTasks(selection)
        self.chunk = 0  # chunks that are done
        self._announced = False  # their meta-strategies
        self._failed: dict[
            str, tuple[int, str]
        ] = {}  # tasks that ended early -> generation, and the policy that was saved

    # ------------------------------------------------------------------------------------------ what subclasses say

    @abstractmethod
    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return the training tasks of the next chunk, in groups that are given out together."""

    def needed(self, view: View) -> Iterable[PolicyProfile]:
        """Return the cells that the next chunk depends on."""
        return ()

    def game(self, view: View) -> Places | None:
        """Return the policies whose meta-game the next chunk depends on; None: on none."""
        return None

    def review(self, view: View) -> None:
        """Called once after each chunk (and before the first), when the needed cells are there."""

    @abstractmethod
    def solution(self, view: View) -> MetaSolution:
        """Return the meta-strategies that are announced after a chunk."""

    def trained(self, result: TrainingResult, view: View) -> None:
        """Called once per training result; whoever adds to it calls this one too."""
        now = result.task.generation
        self._failed = {task: saved for task, saved in self._failed.items() if saved[0] == now}
        if result.failure is not None:
            self._failed[result.task.id] = (now, result.ref.policy)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to train."""
        return self.chunk >= self.options.chunks

    # ------------------------------------------------------------------------------------------ what they share

    def source(self, population: int, before: str | None, start: Start = None) -> Source:
        """Return what a learner's next task goes on from: task `before`, or its last good weights if that ended early; without one,
        `start`."""
        if before is None:
            return {"continues": None, "start": start}
        if before in self._failed:
            return {"continues": None, "start": PolicyRef(population, self._failed[before][1], mode=self.options.mode)}
        return {"continues": before, "start": None}

    def seat_by_seat(
        self, population: int, view: View, opponents_from: Callable[[int], tuple[Sequence[PolicyRef], Sequence[float]]]
    ) -> Mixture:
        """Return the opponents of a population's learners, in each seat independently. The only seat of the learners' own population is
        theirs, whatever is named there.

        Args:
            opponents_from: Gives the members of a population and their probabilities.
        """
        marginals: dict[int, tuple[Sequence[PolicyRef], Sequence[float]]] = {}
        for seat, which in enumerate(self.population):
            others = which in self.against(population)
            marginals[seat] = opponents_from(which) if others else ([view.populations[which][0]], [1.0])
        return Mixture.product(marginals)

    # ------------------------------------------------------------------------------------------ the scheduler

    def advance(self) -> None:
        """Begin the next chunk."""
        self.chunk, self._announced = self.chunk + 1, False
        self.payoffs.begin()

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        """Return groups of what can be done now; none when the schedule is complete. Raises ConfigError if a population is empty."""
        if empty := [k for k in self.populations if not view.populations[k]]:
            raise ConfigError(f"population {empty[0]} is empty; add a policy to it first.")
        groups: list[Sequence[Task]] = []
        if not self._announced:
            game = view.payoffs.everyone if self.options.complete else self.game(view)
            needed, name = self.needed(view), str(self.chunk)
            if missing := self.payoffs.missing(name, self.chunk, view.payoffs, game=game, needed=needed):
                return missing
            self.review(view)
            groups += one_task_per_group([announcement(self.chunk, self.solution(view))])
            self._announced = True
        if not self.over:
            groups += self.groups(view)
        return groups

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "chunk": self.chunk,
            "announced": self._announced,
            "failed": {task: list(saved) for task, saved in self._failed.items()},
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.payoffs.load_state_dict(state)
        self.chunk, self._announced = int(state["chunk"]), bool(state["announced"])
        self._failed = {task: (int(saved[0]), str(saved[1])) for task, saved in state["failed"].items()}


def refuse_changes(saved: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise RunError if an option's value is another one than in the saved state, which cannot follow it."""
    for name, value in options.items():
        if saved[name] != value:
            raise RunError(
                f"the run was saved with {name}: {saved[name]}, and the options say {name}: {value}, which cannot change on the way. "
                f"Go on with {saved[name]}, or start a new run."
            )
