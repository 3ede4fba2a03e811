"""How a training task collects: what it requests (who learns, in which seats, against whom, with which random streams), and how it waits.

SyncCollector   request -> all hosts -> one rollout -> learn -> publish -> next request             (single, sync: lag 0)
AsyncCollector  a request or more at every host; whoever has answered is learned from, and gets   (async: bounded lag)
                the newest weights with its next request
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ludus.algorithms.common.base import CollectConfig
from ludus.core import recorders, seeding
from ludus.core.errors import ScenarioError
from ludus.core.types import Array, Mixture, PolicyRef, State, TrainingTask, condition_mode
from ludus.metagame.population.match_log import win_rate
from ludus.policies.base import Policy
from ludus.rollout.async_limits import AsyncLimits, InFlightLimiter, InFlightPermit
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.opponents import AdaptiveOpponents, initial_mixture, learner_refs, live_refs, mixture_refs
from ludus.rollout.rollouts import Pending, Receive, RemotePolicy, Rollouts
from ludus.training.stopping import Progress
from ludus.training.trainer import LearnResult

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
        return {name: getattr(self, name) for name in recorders.PROGRESS}

    def progress(self, seconds: float) -> Progress:
        """Return what stoppers look at."""
        counts: Mapping[str, Any] = self.totals
        return Progress(**counts, seconds=seconds, scores=tuple(self.returns), win_rates=tuple(self.wins))

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


Policies = Sequence[tuple[PolicyRef, Policy | RemotePolicy]]


class MakeRequest(Protocol):
    """The next order of a task, which goes on with open episodes or does not, and the policies that it names, in their newest versions.
    host: for whom it is, or 0 for all."""

    def __call__(self, *, carry_on: bool, host: int) -> tuple[RolloutRequest, Policies]: ...


@dataclass(frozen=True, slots=True)
class Collected:
    """rollouts: what is to be learned from now. stale: decisions that were thrown away, since too old weights had made them. learned: of
    each rollout what came of learning from it, where that is done already; each of them is an iteration then."""

    rollouts: Sequence[Rollout]
    stale: int = 0
    learned: Sequence[LearnResult] = ()


class Collector(Protocol):
    """Between `begin` and `take` hosts play; after `take` there is something to learn from."""

    def begin(self) -> None:
        """See that hosts have requests, with the newest weights."""
        ...

    def take(self) -> Collected:
        """Wait for the next iteration's rollouts."""
        ...

    def prefetch_requests(self) -> None:
        """Send requests to hosts that need not wait for the learner: what was taken is counted, and will be learned from."""
        ...

    def on_published(self) -> None:
        """Record that weights that were trained on what was taken are published."""
        ...

    def drain(self) -> Collected:
        """Return what hosts still owe; open episodes end here, and the next request begins new ones."""
        ...

    def close(self) -> None:
        """Cancel what hosts still owe."""
        ...


class SyncCollector:
    """All hosts play one request, and nobody goes on before it is learned from."""

    def __init__(
        self,
        rollouts: Rollouts[Any],
        request: MakeRequest,
        *,
        task_slot: int,
        carries_on: bool,
        receive: Receive | None = None,
    ) -> None:
        """carries_on: whether episodes stay open from one request to the next. receive: takes what hosts leave."""
        self._rollouts, self._request, self._task_slot, self._carries_on = rollouts, request, task_slot, carries_on
        self._receive = receive
        self._open = False
        self._pending: Pending | None = None

    def begin(self) -> None:
        if self._pending is None:
            request, policies = self._request(carry_on=self._open, host=0)
            self._pending = self._rollouts.start(request, policies, task_slot=self._task_slot)

    def take(self) -> Collected:
        self.begin()
        assert self._pending is not None
        rollout = self._rollouts.finish(self._pending, receive=self._receive)
        self._pending, self._open = None, self._carries_on
        return Collected((rollout,))

    def prefetch_requests(self) -> None:
        return None

    def on_published(self) -> None:
        return None

    def drain(self) -> Collected:
        self._open = False
        return Collected(())

    def close(self) -> None:
        if self._pending is not None:
            self._rollouts.cancel(self._pending)


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    lease: InFlightPermit
    host: int
    pending: Pending


class AsyncCollector:
    """Every host has requests of its own. Credits bound how much is collected and not yet learned from: `in_flight` for each host."""

    def __init__(
        self,
        rollouts: Rollouts[Any],
        request: MakeRequest,
        *,
        task_slot: int,
        carries_on: bool,
        async_limits: AsyncLimits,
        version: Callable[[], int],
        wants: Callable[[float], bool],
        hosts: Sequence[int],
        receive: Receive | None = None,
    ) -> None:
        """version: the newest weights'. wants(requests): whether the task needs more than that many whole requests, which are being played.
        hosts: those that have a share of the task's requests. receive: takes what they leave. Raises ScenarioError if `async_limits`
        waits for more than there can be."""
        self._rollouts, self._request, self._task_slot, self._async_limits = rollouts, request, task_slot, async_limits
        self._carries_on, self._version, self._wants = carries_on, version, wants
        self._hosts, self._receive = hosts, receive
        self._credits = InFlightLimiter(async_limits.in_flight * len(hosts))
        self._least = len(hosts) if async_limits.min_completed is None else async_limits.min_completed
        if self._least > self._credits.limit:
            raise ScenarioError(
                f"runtime.min_completed={self._least} partial results are never there: {len(hosts)} workers with "
                f"{async_limits.in_flight} requests each make {self._credits.limit} at most. Give that or fewer."
            )
        self._in_flight: list[_InFlight] = []
        self._open = [False] * rollouts.hosts
        self._taken: list[InFlightPermit] = []
        self._draining = False

    def begin(self) -> None:
        for most in range(1, self._async_limits.in_flight + 1):  # everybody gets one before somebody gets two
            for host in self._hosts:
                if sum(request.host == host for request in self._in_flight) < most and not self._ask(host):
                    return

    def take(self) -> Collected:
        self.begin()
        return self._gather(self._least)

    def prefetch_requests(self) -> None:
        self.begin()

    def on_published(self) -> None:
        self._credits.release(self._taken)
        self._taken = []

    def drain(self) -> Collected:
        self._draining = True
        collected = self._gather(len(self._in_flight))
        self._draining = False
        self._open = [False] * self._rollouts.hosts
        return collected

    def close(self) -> None:
        for request in self._in_flight:
            self._rollouts.cancel(request.pending)
        self._in_flight = []

    def _ask(self, host: int) -> bool:
        """Request one more rollout of a host, if a permit is free and the task needs more."""
        if self._draining or not self._wants(len(self._in_flight) / len(self._hosts)):
            return False
        lease = self._credits.reserve(f"{host} {self._rollouts.life(host)}")
        if lease is None:
            return False
        request, policies = self._request(carry_on=self._open[host], host=host)
        pending = self._rollouts.start(request, policies, task_slot=self._task_slot, hosts=(host,))
        self._in_flight.append(_InFlight(lease, host, pending))
        self._open[host] = self._carries_on
        return True

    def _gather(self, least: int) -> Collected:
        """Return at least `least` partial results that are not too old, or all that are still in flight, and those that come within the
        window after them."""
        rollouts: list[Rollout] = []
        stale = 0
        while len(rollouts) < least and self._in_flight:
            for request in self._arrived(at_least=1, timeout=None):
                stale += self._keep(rollouts, request, self._deliver(request))
        if self._async_limits.gather_window and self._in_flight:
            for request in self._arrived(at_least=len(self._in_flight), timeout=self._async_limits.gather_window):
                stale += self._keep(rollouts, request, self._deliver(request))
        return Collected(rollouts, stale)

    def _arrived(self, *, at_least: int, timeout: float | None) -> list[_InFlight]:
        pending = [request.pending for request in self._in_flight]
        done = self._rollouts.done(pending, at_least=at_least, timeout=timeout)
        return [request for request in self._in_flight if request.pending in done]

    def _deliver(self, request: _InFlight) -> Rollout | None:
        """Return what came; None if the host died, and with it everything that this life of it owed: whoever comes next is asked for it.
        What the next life owes already (another task slot was first to learn of the death) stays asked for."""
        if request not in self._in_flight:
            return None
        self._in_flight.remove(request)
        rollout = self._rollouts.take(request.pending, receive=self._receive)
        if rollout is None:
            owed = [other for other in self._in_flight if other.host == request.host]
            for lost in [other for other in owed if other.lease.worker == request.lease.worker]:
                self._rollouts.cancel(lost.pending)
                self._in_flight.remove(lost)
                owed.remove(lost)
            self._credits.died(request.lease.worker)
            self._open[request.host] = self._carries_on and bool(owed)
        elif self._credits.deliver(request.lease):
            self._taken.append(request.lease)
        return rollout

    def _keep(self, rollouts: list[Rollout], request: _InFlight, rollout: Rollout | None) -> int:
        """Add the rollout to `rollouts`. One that is too old is discarded, and another is requested with the newest weights; then return
        its number of decisions."""
        if rollout is None:
            return 0
        learner = request.pending.request.learner
        assert learner is not None
        assert learner.version is not None
        if self._async_limits.max_lag is not None and self._version() - learner.version > self._async_limits.max_lag:
            if request.lease in self._taken:  # nothing will be learned from it
                self._taken.remove(request.lease)
                self._credits.release([request.lease])
            self._ask(request.host)
            return rollout.counters["learner_decisions"]
        rollouts.append(rollout)
        return 0
