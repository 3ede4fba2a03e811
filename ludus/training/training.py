"""One training task in progress: collect, insert, learn, publish, again; each of them a step that a driver paces.

RolloutWorker --trajectories--> Learner.items --> tables --samples--> Learner.update
      ^                                                                     |
      +------------------ Policy Server <-- versioned weights --------------+
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ludus import seeding
from ludus.algorithms.base import Algorithm, LearnerContext
from ludus.data.episode_server import EpisodeServer
from ludus.data.policy_server import PolicyServer
from ludus.errors import Deadlock, ScenarioError, TrainingError
from ludus.evaluation.matches import won
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.profile import Profile
from ludus.rollout.base import Rollout, RolloutOrder
from ludus.rollout.draws import mixture_refs
from ludus.rollout.manager import RolloutManager
from ludus.stopping.progress import Progress
from ludus.stopping.stoppers import Stopper
from ludus.types import Metrics, Mixture, PolicyRef, State, Trained, TrainingTask, Weights

LoadPolicy = Callable[[PolicyRef], Policy]


@dataclass(frozen=True, slots=True)
class Parts:
    """What training tasks of a run share. `policy` gives a frozen policy of the populations."""

    rollouts: RolloutManager
    episodes: EpisodeServer
    policies: PolicyServer
    policy: LoadPolicy
    seed: int

    @property
    def profile(self) -> Profile:
        """Where the run's time goes."""
        return self.rollouts.profile


@dataclass(slots=True)
class _Counts:
    iterations: int = 0
    env_steps: int = 0
    decisions: int = 0
    episodes: int = 0
    samples: int = 0
    updates: int = 0
    truncated: int = 0  # episodes that barriers ended
    next_episode: int = 0  # above all ids of episodes so far, those that were left open included
    seconds: float = 0.0  # of earlier sessions
    returns: list[float] = field(default_factory=list)  # mean return of the learner's episodes, per iteration
    wins: list[tuple[float, int]] = field(default_factory=list)  # (share won, episodes), per iteration
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update


class Training:
    """One `TrainingTask`. `step` is one iteration; `finished` says why it is over. Deterministic given its task and the run's seed;
    `state_dict` at a barrier and `load_state_dict` into a new one go on bit-equally."""

    def __init__(
        self, task: TrainingTask, *, algorithm: Algorithm, parts: Parts, stop: Stopper, start: Weights | None
    ) -> None:
        if not isinstance(task.opponents, Mixture):
            raise ScenarioError(
                f"task {task.id}: opponents of kind {type(task.opponents).__name__} need a runtime with several learners."
            )
        self.task, self._parts, self._stop = task, parts, stop
        env = parts.rollouts.spec
        self._collect = algorithm.collect()
        seed = seeding.key(parts.seed, task.id)
        total = stop.limit(self._collect.unit)
        self._learner = algorithm.learner(LearnerContext(env=env, seats=task.seats, seed=seed, total=total), start)
        self._seed, self._opponents = seed, task.opponents
        self._frozen = [(ref, parts.policy(ref)) for ref in mixture_refs(task.opponents)]
        self._count = _Counts()
        self._seats = task.seats  # environment e plays seats[e mod len]
        self._carry_on = False
        self._failure: str | None = None
        self._started = time.perf_counter()
        self._weights = self._learner.weights()  # the last good ones
        parts.episodes.create(task.id, algorithm.tables())
        self._publish()

    # ------------------------------------------------------------------------------------------ one iteration

    def step(self) -> None:
        """Collect once, and learn from all that is due."""
        count = self._count
        rollout = self._rollout()
        trajectories = rollout.trajectories  # none, if the learner never had to act
        try:
            for table, items in self._learner.items(trajectories) if trajectories is not None else ():
                if not self._parts.episodes.try_insert(self.task.id, table, items):
                    raise Deadlock(
                        f"task {self.task.id}: table {table!r} refuses the {len(next(iter(items.values())))} items of one rollout "
                        "while nothing else could make room; collect less at a time, or raise its max_diff or capacity."
                    )
            self._learn()
            self._keep(self._learner.weights())
        except TrainingError as error:
            with suppress(TrainingError):  # the learner itself has kept the last good ones; if not, ours are older
                self._keep(self._learner.weights())
            self._failure = f"{error} (task {self.task.id}, iteration {count.iterations + 1})"
            return
        count.iterations += 1
        self._publish()
        self._carry_on = self._collect.unit == "decisions"

    def _rollout(self) -> Rollout:
        parts, count, collect = self._parts, self._count, self._collect
        learner = PolicyRef(self.task.population, self.task.policy, self._version)
        weights = parts.policies.get(self.task.policy, self._version)
        policies = [(learner, build_policy(self._learner.spec, weights)), *self._frozen]
        if not self._carry_on:
            first = count.iterations % len(self.task.seats)  # every seat has its turn, even with one environment
            self._seats = self.task.seats[first:] + self.task.seats[:first]
        order = RolloutOrder(
            learner=learner,
            seats=self._seats,
            opponents=self._opponents,
            unit=collect.unit,
            amount=collect.amount,
            seed=seeding.key(self._seed, "collect", count.iterations),
            carry_on=self._carry_on,
            extras=collect.extras,
            first_episode=count.next_episode,
        )
        rollout = parts.rollouts.run(order, policies)
        count.env_steps += rollout.counters["env_steps"]
        count.decisions += rollout.counters["learner_decisions"]
        count.episodes += rollout.counters["episodes"]
        episodes, trajectories = rollout.episodes, rollout.trajectories
        for ids in (episodes.index, () if trajectories is None else trajectories.episode):
            count.next_episode = max(count.next_episode, 1 + int(np.max(ids, initial=-1)))
        if len(episodes.seat):
            mine = episodes.returns[np.arange(len(episodes.seat)), episodes.seat]
            count.returns.append(float(mine.mean()))
            count.wins.append((won(episodes.returns, episodes.seat), len(mine)))
        return rollout

    def _learn(self) -> None:
        count = self._count
        for table, size in self._learner.batches():
            batch = self._parts.episodes.try_sample(self.task.id, table, size)
            if batch is None:
                return  # the limiter wants more items first
            with self._parts.profile.part("learning"):
                count.metrics = dict(self._learner.update(batch))
            count.samples += len(batch.index)
            count.updates += 1

    def _keep(self, weights: Weights) -> None:
        for name, array in weights.items():
            if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
                raise TrainingError(f"the weights {name!r} became NaN or infinite; those from before are kept")
        self._weights = weights

    @property
    def _version(self) -> int:
        return self._count.iterations + 1  # 0 is the version of the member that comes of it

    def _publish(self) -> None:
        self._parts.policies.publish(self.task.policy, self._weights, self._version)
        self._parts.episodes.announce(self.task.id, self._version)

    # ------------------------------------------------------------------------------------------ around it

    @property
    def progress(self) -> Progress:
        count = self._count
        return Progress(
            env_steps=count.env_steps,
            decisions=count.decisions,
            episodes=count.episodes,
            samples=count.samples,
            updates=count.updates,
            seconds=self._seconds,
            scores=tuple(count.returns),
            win_rates=tuple(count.wins),
        )

    @property
    def _seconds(self) -> float:
        return self._count.seconds + time.perf_counter() - self._started

    @property
    def iterations(self) -> int:
        return self._count.iterations

    @property
    def fraction(self) -> float | None:
        """Share that is done, in [0, 1]; None if the stopper cannot say."""
        return self._stop.fraction(self.progress)

    @property
    def metrics(self) -> Metrics:
        """Newest numbers of the learner, its mean return in the newest rollout, and how many episodes barriers have truncated."""
        count = self._count
        out = dict(count.metrics)
        if count.returns:
            out["return"] = count.returns[-1]
        if count.truncated:
            out["truncated_episodes"] = float(count.truncated)
        return out

    def finished(self) -> str | None:
        """Why the task is over; None while it is not."""
        return self._failure or self._stop.reason(self.progress)

    def barrier(self) -> None:
        """A checkpoint is taken here, in every run: episodes that are open end as counted, bootstrapped truncations. (Their fragments
        were cut, and so bootstrapped, when they came; a decision that was still waiting for its reward is lost.)"""
        if self._carry_on:
            self._count.truncated += self._parts.rollouts.num_envs
        self._carry_on = False

    def result(self) -> Trained:
        """The trained policy; close the task with it."""
        count, task = self._count, self.task
        self.close()
        counters: Mapping[str, int] = {
            name: getattr(count, name) for name in ("env_steps", "decisions", "episodes", "samples", "updates")
        }
        return Trained(
            task=task,
            ref=PolicyRef(task.population, task.policy, mode=task.mode),
            spec=self._learner.spec,
            weights=self._weights,
            metrics=self.metrics,
            counters=counters,
            failure=self._failure,
        )

    def close(self) -> None:
        """Free the task's tables and published weights."""
        self._parts.episodes.close(self.task.id)
        self._parts.policies.forget(self.task.policy)

    def state_dict(self) -> State:
        count = self._count
        return {
            "learner": self._learner.state_dict(),
            "tables": self._parts.episodes.state_dict(self.task.id),
            "counts": {**{name: getattr(count, name) for name in _Counts.__slots__}, "seconds": self._seconds},
        }

    def load_state_dict(self, state: State) -> None:
        self._learner.load_state_dict(state["learner"])
        self._parts.episodes.load_state_dict(self.task.id, state["tables"])
        counts = state["counts"]
        self._count = _Counts(**{name: counts[name] for name in _Counts.__slots__})
        self._count.wins = [(share, episodes) for share, episodes in counts["wins"]]
        self._started = time.perf_counter()
        self._weights = self._learner.weights()
        self._parts.policies.forget(self.task.policy)
        self._publish()
