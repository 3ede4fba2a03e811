"""The requests of a training task: who learns, in which seats, against whom, and with which random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ludus.algorithms.common.base import CollectConfig
from ludus.core import curve_recorder, seeding
from ludus.core.errors import ScenarioError
from ludus.core.types import Array, Mixture, PolicyRef, State, TrainingTask, condition_mode
from ludus.metagame.population.match_log import win_rate
from ludus.policies.base import Policy
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.opponent_sampling import learner_refs, mixture_refs
from ludus.rollout.opponents import AdaptiveOpponents, initial_mixture, live_refs
from ludus.rollout.rollouts import RemotePolicy, Rollouts
from ludus.training.collecting import Policies
from ludus.training.stopping import Progress

# --------------------------------------------------------------------------------------------------------------------
# What a training task has counted.


@dataclass(slots=True)
class TrainingCounts:
    """Sums over the task; also what a checkpoint keeps of it."""

    iterations: int = 0
    published: int = 0  # versions of the weights
    unpublished: int = 0  # iterations since the last of them
    env_steps: int = 0
    decisions: int = 0
    episodes: int = 0
    samples: int = 0
    updates: int = 0
    requests: int = 0
    begun: int = 0  # of these, with all episodes anew
    cut_at: int = 0  # requests at the last barrier
    barrier_at: int = 0  # iterations at the last barrier
    decisions_at: int = 0  # decisions then
    truncated: int = 0  # episodes that barriers ended
    stale: int = 0  # decisions that were too old to learn from
    next_episode: int = 0  # above all ids of episodes so far, those that were left open included
    seconds: float = 0.0  # of earlier sessions
    returns: list[float] = field(default_factory=list)  # mean return of the learner's episodes, per iteration
    wins: list[tuple[float, int]] = field(default_factory=list)  # (share won, episodes), per iteration
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update

    def add(self, rollout: Rollout) -> Array:
        """Count what was collected for one iteration. The learner's returns of the episodes that are told one by one, float64[n]."""
        self.env_steps += rollout.counters["env_steps"]
        self.decisions += rollout.counters["learner_decisions"]
        self.episodes += rollout.counters["episodes"]
        self.next_episode = max(self.next_episode, rollout.next_episode)
        episodes, sums = rollout.episodes, rollout.sums
        own_returns = episodes.learner_returns
        if len(own_returns):
            self.returns.append(float(own_returns.mean()))
            self.wins.append((win_rate(episodes.returns, episodes.seat), len(own_returns)))
        elif sums is not None and sums.count:
            self.returns.append(sums.mean)
            self.wins.append((sums.won, sums.count))
        return own_returns

    @property
    def totals(self) -> Mapping[str, int]:
        """What was counted since the task began, by name."""
        return {name: getattr(self, name) for name in curve_recorder.PROGRESS}

    def progress(self, seconds: float) -> Progress:
        """Return what stoppers look at."""
        return Progress(
            env_steps=self.env_steps,
            decisions=self.decisions,
            episodes=self.episodes,
            samples=self.samples,
            updates=self.updates,
            seconds=seconds,
            scores=tuple(self.returns),
            win_rates=tuple(self.wins),
        )

    def state_dict(self) -> State:
        """Return what is so now: a checkpoint that another task writes later holds it as it was."""
        return {name: copy(getattr(self, name)) for name in self.__slots__}

    @staticmethod
    def of(state: State) -> TrainingCounts:
        """Return the counts of a state of `state_dict`."""
        state = {
            "published": state["iterations"],
            "unpublished": 0,
            "begun": state["requests"],
            "barrier_at": state["iterations"],
            "decisions_at": state["decisions"],
            **state,
        }  # before publish_every there was a version for each; states are those of barriers
        counts = TrainingCounts(**{name: copy(state[name]) for name in TrainingCounts.__slots__})
        counts.wins = [(share, episodes) for share, episodes in counts.wins]
        return counts


class NewestWeights(Protocol):
    """A learner in progress."""

    def newest(self, mode: str) -> tuple[PolicyRef, Policy | RemotePolicy]:
        """Return its newest weights, and the ref with their version."""
        ...


class RequestMaker:
    """Makes the requests of one task; what it has given out is counted in `TrainingCounts`."""

    def __init__(
        self,
        task: TrainingTask,
        collect: CollectConfig,
        rollouts: Rollouts[Any],
        policy: Callable[[PolicyRef], Policy],
        *,
        seed: int,
        asynchronous: bool,
    ) -> None:
        """policy: gives a frozen one. seed: of the task. asynchronous: whether hosts have requests of their own. Raises UnknownName or
        ConfigError for opponents that are moved by a rule that there is not."""
        self.opponents = AdaptiveOpponents(task.opponents)
        self._rows = [AdaptiveOpponents(row.opponents) for row in task.rows]
        self._task, self._collect, self._rollouts, self._seed = task, collect, rollouts, seed
        self._asynchronous = asynchronous
        refs = mixture_refs(initial_mixture(task.opponents))
        self._frozen = [(ref, policy(ref)) for ref in refs if ref.version is not None]
        self._live = live_refs(task.opponents)
        self._learners: WeakValueDictionary[tuple[int, str], NewestWeights] = WeakValueDictionary()
        self._seats: dict[int, tuple[int, ...]] = {}  # by host: its environment e plays seats[e mod len]

    def set_live_opponents(self, learners: Mapping[tuple[int, str], NewestWeights]) -> None:
        """The trainings in progress together, by (population, policy), which the caller keeps: whose newest weights live opponents are."""
        self._learners = WeakValueDictionary(learners)  # a task meets itself, too

    @property
    def frozen(self) -> Policies:
        """The opponents whose weights stay."""
        return self._frozen

    @property
    def knows_opponents(self) -> bool:
        """Whether every live opponent is known."""
        return all((ref.population, ref.policy) in self._learners for ref in self._live)

    def request(
        self,
        count: TrainingCounts,
        *,
        learner: PolicyRef,
        weights: Policy | RemotePolicy,
        carry_on: bool,
        host: int,
        seconds: float | None = None,
    ) -> tuple[RolloutRequest, Policies]:
        """Return the next one, and the policies that it names. learner: with its newest version, whose weights are `weights`. seconds:
        after which it is cut short."""
        collect = self._collect
        if not carry_on:
            seats = self._task.seats
            turn = count.begun // max(1, len(self._rows))
            count.begun += 1
            first = turn % len(seats)  # every seat has its turn, even with one environment
            self._seats[host] = seats[first:] + seats[:first]
        if (
            self._asynchronous or collect.unit == "decisions"
        ):  # ids differ from those of open episodes, whoever has to begin anew
            envs = self._rollouts.num_envs
            count.next_episode = -(-count.next_episode // envs) * envs
        row = count.requests % len(self._rows) if self._rows else None
        settings = collect if row is None else replace(collect, modes=((condition_mode(row), 1.0),))
        opponents, policies = self.playing(learner, weights, row=row)
        share = self._task.together
        request = settings.request(
            learner,
            opponents,
            seats=self._seats[host],
            seed=seeding.key(self._seed, "collect", count.requests),
            modes_seed=self._seed,
            carry_on=carry_on,
            first_episode=count.next_episode,
            together=int((count.requests + 1) * share) > int(count.requests * share),
            seconds=seconds,
        )
        named = {**dict(policies), **dict.fromkeys(learner_refs(request), weights)}
        count.requests += 1
        if self._asynchronous and collect.unit == "episodes":
            count.next_episode += collect.amount
        return request, [*named.items()]

    def playing(
        self, learner: PolicyRef, weights: Policy | RemotePolicy, *, row: int | None = None
    ) -> tuple[Mixture, Policies]:
        """Return the opponents as they are now, of one row if it is said which, and everybody who may play, each once. Raises ScenarioError
        if a live opponent is nobody who is in progress."""
        if not self.knows_opponents:
            raise self._unknown()
        policies: dict[PolicyRef, Policy | RemotePolicy] = {learner: weights}

        def live(ref: PolicyRef) -> PolicyRef:
            if ref._replace(version=learner.version) == learner:
                return learner
            now, policy = self._learners[ref.population, ref.policy].newest(ref.mode)
            policies.setdefault(now, policy)
            return now

        opponents = self.opponents if row is None else self._rows[row]
        return opponents.mixture(live), [*policies.items(), *self._frozen]

    def _unknown(self) -> ScenarioError:
        ref = next(ref for ref in self._live if (ref.population, ref.policy) not in self._learners)
        known = (
            ", ".join(f"{policy!r} of population {population}" for population, policy in self._learners) or "nothing"
        )
        return ScenarioError(
            f"task {self._task.id} plays against the newest weights of {ref.policy!r} of population {ref.population}, which no task in "
            f"progress with it trains; those train {known}. The scheduler must give them out together."
        )
