"""Evaluation beside training: pinned versions of a learner are played by processes of their own, while it goes on learning.

Training --offer(version, weights)--> evaluator's hosts --returns--> score of that version
(JORLDY's manage process: Min et al. 2022, section 3.)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ludus.core import seeding
from ludus.core.errors import PartDied
from ludus.core.types import Mixture, PolicyRef, TrainingTask
from ludus.policies.base import Policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.host import RolloutHost
from ludus.rollout.opponents import mixture_refs
from ludus.rollout.rollouts import Pending, RemotePolicy, Rollouts

_MOST = 2  # versions that wait or are played
_HEARD = 0.2  # seconds of waiting between two times that a stop is looked for


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a version of the policy that a task trains, against the task's opponents: mean return of `episodes` episodes, and its
    standard error."""

    task: str
    version: int
    episodes: int
    mean: float
    error: float


class _ScoreRequest(NamedTuple):
    task: str
    version: int
    pending: Pending


class Evaluator(RolloutHost):
    """The evaluator's process."""

    called, heard = "evaluator", True  # a version may be played for minutes


class BackgroundEvaluator:
    """Every version plays the same commonly seeded episodes, so that scores of one task differ by skill more than by luck. A version that
    comes while two others wait is passed over; so is one that an evaluator has died with. The first task that ends with such
    ones says so.

    Scores are an extra: where no evaluator is left (it died more often than it may), training goes on without them.
    """

    def __init__(
        self,
        rollouts: Rollouts[Any],
        *,
        every: int,
        episodes: int,
        seed: int,
        record: Callable[[Score], None],
        scored: Callable[[str], Collection[int]],
        tell: Callable[[str], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """rollouts: of the evaluator, with hosts of its own; they belong to it. every: versions from one that is scored to the next.
        record: takes scores as they come. scored: the versions of a task that earlier sessions have scored. tell: takes the sentences
        that versions go without a score, and that there will be no more scores, if it comes to that; each once. on_progress: called now and
        then while scores are waited for; what it raises ends that."""
        self._rollouts, self._every, self._episodes, self._seed = rollouts, every, episodes, seed
        self._record, self._scored, self._tell, self._on_progress = record, scored, tell, on_progress
        self._requests: deque[_ScoreRequest] = deque()
        self._known: dict[str, frozenset[int]] = {}  # by task that is in progress: what was scored before this session
        self._skipped: Counter[str] = Counter()  # versions without a score, by task that is in progress
        self._ended = self._warned = False

    def submit(
        self, task: TrainingTask, version: int, policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]]
    ) -> None:
        """A new version of a task's policy is out. policies: that one and its opponents. One that was scored before a resume is not
        played again."""
        self.collect()
        if self._ended or version % self._every or not isinstance(task.opponents, Mixture):
            return
        if task.id not in self._known:
            self._known[task.id] = frozenset(self._scored(task.id))
        if version in self._known[task.id]:
            return
        if len(self._requests) >= _MOST:
            self._skipped[task.id] += 1
            return
        (explorer, newest), *others = policies
        learner = explorer._replace(mode=task.mode)
        playing = {learner: newest, **dict(others)}
        if explorer in mixture_refs(task.opponents):  # it is among its own opponents
            playing[explorer] = newest
        request = RolloutRequest(
            learner=learner,
            seats=task.seats,
            opponents=task.opponents,
            unit="episodes",
            amount=self._episodes,
            seed=seeding.key(self._seed, "background", task.id),
        )
        pending = self._rollouts.start(request, list(playing.items()), on_progress=lambda _: self._on_progress())
        self._requests.append(_ScoreRequest(task.id, version, pending))
        self.collect()

    def collect(self, *, wait_for: str | None = None) -> None:
        """Record what is done; wait for the scores of one task, which is over."""
        try:
            self._take(wait_for)
        except PartDied as error:  # no restart is left
            self._end(error)
        if wait_for is not None:
            self._known.pop(wait_for, None)
            passed = self._skipped.pop(wait_for, 0)
            if passed and not self._warned:
                self._warned = True
                self._tell(
                    f"{wait_for}: {passed} of the versions that were to be scored have no score: they came while {_MOST} others "
                    "waited, or an evaluator died with them. A larger evaluation.background.every, or fewer episodes, lets it keep "
                    "up. Later tasks do not say so again."
                )

    def _take(self, wait_for: str | None) -> None:
        while self._requests:
            request = self._requests[0]
            wanted = wait_for is not None and any(a.task == wait_for for a in self._requests)
            while not self._rollouts.done([request.pending], at_least=int(wanted), timeout=_HEARD if wanted else 0.0):
                if not wanted:
                    return
                self._on_progress()
            self._requests.popleft()
            rollout = self._rollouts.take(request.pending)
            if rollout is None:  # the evaluator died, and was made again
                self._skipped[request.task] += 1
                continue
            returns = rollout.episodes.learner_returns
            error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else float("nan")
            self._record(Score(request.task, request.version, len(returns), float(returns.mean()), error))

    def _end(self, error: PartDied) -> None:
        self.close()
        self._requests.clear()
        self._skipped.clear()
        self._tell(
            f"versions are not scored any more: {error} The run goes on without; a resumed one has an evaluator again."
        )

    def close(self) -> None:
        """End the evaluator. Closing twice is harmless."""
        if not self._ended:
            self._ended = True
            self._rollouts.close()
