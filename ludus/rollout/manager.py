r"""The rollout manager: gives requests to rollout hosts, wherever the runtime has put them, and merges what they bring.

request --> host 0 (shards 0, 1 …) --rollouts--+
      \-> host 1 (shards …)      --rollouts--+--> one rollout, in the order of the shards
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from ludus.core.errors import PartDied
from ludus.core.machine import files_to_keep
from ludus.core.recorders import Timings
from ludus.core.types import CPU, DeviceChoice, EnvSpec, PolicyRef
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, BotSettings
from ludus.rollout import rollouts
from ludus.rollout.base import RecentCache, Rollout, RolloutRequest, check_shares, merge, split_envs
from ludus.rollout.host import CACHE_BYTES, SCORED, HostSpec, MakeEnv, PolicyMessage, RolloutHost
from ludus.rollout.inference.server import Servers, Serving, SharedInference
from ludus.rollout.rollouts import Pending, ProgressCallback, Receive, RemotePolicy, Rollouts, report_faults
from ludus.rollout.worker import EndlessWarning
from ludus.runtime.base import Handle, Ref, Runtime, ignore

# --------------------------------------------------------------------------------------------------------------------
# Waits for hosts, and makes those again that are stuck.

_STARTING = 300.0  # seconds that making a host may take before its deadline counts
_HEARTBEAT_SECONDS = 20.0  # seconds that a host's process may take to say how it is


class PendingReply(NamedTuple):
    """An answer that a host owes."""

    host: int
    answer: Ref


class _Start(NamedTuple):
    """A host's life, an answer as soon as it is made, and the time until which it may take for that."""

    life: int
    answer: Ref
    until: float


class _HeartbeatRequest(NamedTuple):
    """A heartbeat that a host was asked for, when, and until when it may take."""

    answer: Ref
    since: float
    until: float


class HostMonitor:
    """A host that owes an answer is stuck when `deadline` seconds pass in which it gives none and makes no step (it is looked at that
    often, so it is noticed within twice that time, if somebody waits for answers then)."""

    def __init__(
        self,
        runtime: Runtime,
        hosts: Sequence[Handle],
        *,
        deadline: float | None,
        excused: Callable[[int], bool] | None = None,
    ) -> None:
        """Args:
        hosts: Parts that have a heartbeat, which changes with every step.
        deadline: Seconds without a step after which a host is stuck; None: none ever is.
        excused: Whether what a host waits for was stuck instead, and was taken care of.
        """
        self._runtime, self._hosts, self._deadline, self._excused = runtime, hosts, deadline, excused
        self._owed = [0] * len(hosts)
        self._heard = [0.0] * len(hosts)  # when it gave a sign of life last, or was first asked since then
        self._heartbeat: list[Any] = [None] * len(hosts)
        self._question: list[_HeartbeatRequest | None] = [None] * len(hosts)  # the last one
        self._made: list[_Start | None] = [None] * len(hosts)  # in their present lives

    def expect_reply(self, host: int) -> None:
        """Record that a host is about to be asked for an answer."""
        handle = self._hosts[host]
        life, start = self._runtime.incarnation(handle), self._made[host]
        if start is None or start.life != life:
            self._made[host] = _Start(life, self._runtime.call(handle, "ready"), monotonic() + _STARTING)
            self._heartbeat[host] = self._question[host] = None
        if not self._owed[host]:
            self._heard[host] = monotonic()
        self._owed[host] += 1

    def answered(self, host: int) -> None:
        """Record that an answer was taken, or is not needed any more."""
        self._owed[host] -= 1

    def wait(self, owed: Sequence[PendingReply], *, at_least: int = 1, timeout: float | None = None) -> list[bool]:
        """Return which of these are done, once `at_least` are or `timeout` seconds have passed. Hosts that are stuck are made again
        meanwhile, and where nothing is waited for, too, which makes what they owe done. Raises PartDied if one of them has no restart
        left."""
        end, answers = None if timeout is None else monotonic() + timeout, [each.answer for each in owed]
        while True:
            looks = {each.host: self._until(each.host) for each in owed} if self._deadline else {}
            soonest = min([*([] if end is None else [end]), *looks.values()], default=None)
            left = None if soonest is None else max(0.0, soonest - monotonic())
            ready_ids = {
                id(answer) for answer in self._waited(answers, self._open({each.host for each in owed}), at_least, left)
            }
            done = [id(answer) in ready_ids for answer in answers]
            now = monotonic()
            for each, is_done in zip(owed, done, strict=True):
                if is_done:
                    self._heard[each.host] = now
            for host in sorted({each.host for each, is_done in zip(owed, done, strict=True) if not is_done}):
                if host in looks and self._is_stuck(host, looks[host]):
                    self._again(host)
            if sum(done) >= at_least or (end is not None and now >= end):
                return done

    def _waited(
        self, answers: Sequence[Ref], heartbeats: Sequence[Ref], at_least: int, timeout: float | None
    ) -> list[Ref]:
        """Return which answers are there, once so many are, or a heartbeat has come, or time has passed: nobody who answers waits for one
        who does not say how it is."""
        if not heartbeats:
            return self._runtime.wait(answers, at_least=at_least, timeout=timeout)[0]
        done = self._runtime.wait(answers, at_least=0, timeout=0.0)[0]
        if len(done) >= at_least:
            return done
        return self._runtime.wait([*answers, *heartbeats], at_least=len(done) + 1, timeout=timeout)[0]

    def _open(self, hosts: Collection[int]) -> list[Ref]:
        """Return the heartbeats that these hosts were asked for and have not given."""
        return [question.answer for host in hosts if (question := self._asked_for(host)) is not None]

    def _asked_for(self, host: int) -> _HeartbeatRequest | None:
        question = self._question[host]
        return None if question is None or question.since <= self._heard[host] else question

    def _until(self, host: int) -> float:
        """Return when to look at it, if it says nothing until then."""
        question = self._asked_for(host)
        return self._limit(host) if question is None else question.until

    def _limit(self, host: int) -> float:
        """Return when to look at a host, if it says nothing until then. Time in which it is being made does not count, within reason."""
        assert self._deadline is not None
        start, now = self._made[host], monotonic()
        if (
            start is not None
            and now < start.until
            and not self._runtime.wait([start.answer], at_least=0, timeout=0.0)[0]
        ):
            self._heard[host] = now
        return self._heard[host] + self._deadline

    def _is_stuck(self, host: int, look: float) -> bool:
        """Return whether it has made no step since it was looked at last, or does not say so in time. Does not wait: where it is late, it
        is asked for its heartbeat, which comes. look: when it was to be looked at."""
        question, now = self._asked_for(host), monotonic()
        if question is None:
            if now < look or now < self._limit(host):
                return False
            patience = max(_HEARTBEAT_SECONDS, self._deadline or 0.0)  # a long step may hold up the thread that answers
            question = self._question[host] = _HeartbeatRequest(
                self._runtime.heartbeat(self._hosts[host]), now, now + patience
            )
        before = self._heartbeat[host]
        try:
            self._heartbeat[host] = _result_or_none(self._runtime, question.answer)
        except TimeoutError:
            return now >= question.until  # its process does not run
        except PartDied:  # it is over, and made again where its answer is looked at
            self._heard[host] = monotonic()
            return False
        if self._heartbeat[host] == before:
            return True
        self._heard[host] = monotonic()
        return False

    def _again(self, host: int) -> None:
        """Make a host again that is stuck, unless it is excused."""
        if self._excused is not None and self._excused(host):
            self._heard[host] = monotonic()
            return
        handle = self._hosts[host]
        life = self._runtime.incarnation(handle)
        self._runtime.restart(handle, why=f"has made no step for {self._deadline:g} seconds")
        self._heard[host] = monotonic()
        if self._runtime.incarnation(handle) == life:
            raise PartDied(
                f"rollout worker {host} has made no step for {self._deadline:g} seconds, and its restarts are used up. If a step may "
                "take so long, raise runtime.deadline; otherwise look at what its environments are doing."
            )


def _result_or_none(runtime: Runtime, answer: Ref) -> Any:
    """Return what has come. Raises TimeoutError if nothing has."""
    if not runtime.wait([answer], at_least=0, timeout=0.0)[0]:
        raise TimeoutError
    return runtime.get(answer, timeout=_HEARTBEAT_SECONDS)


_BRIEF = 0.2  # seconds that a host may take then to say how it is
_CLOSING = 5.0  # seconds that hosts in the middle of a request may take to close
_IDLE_CLOSING = 300.0  # and the others, where no deadline says it


@dataclass(slots=True, eq=False)
class _PartialResult:
    """What a host was asked for, in which of its lives."""

    host: int
    answer: Ref
    life: int
    left: Ref = None  # trajectories that stay with the runtime
    serving: Serving | None = None  # its inference server
    episodes: int = 0  # of its share that have ended, as it said last
    question: Ref = None  # a heartbeat that it was asked for
    answered: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class HostsPending(Pending):
    """A request that hosts are playing. sent: references to its policies, which stay alive with it."""

    sent: Sequence[tuple[PolicyRef, Ref]]
    partials: Sequence[_PartialResult]


class RolloutManager(Rollouts[HostsPending]):
    """Runs `num_envs` environments in `shards` shards on `hosts` parts of the runtime. It owns the hosts and their environments."""

    def __init__(
        self,
        runtime: Runtime,
        make_env: MakeEnv,
        *,
        spec: EnvSpec,
        num_envs: int,
        shards: int = 1,
        hosts: int = 1,
        resources: Mapping[str, float] | None = None,
        restarts: int = 0,
        deadline: float | None = None,
        leave: bool = False,
        profile: Timings | None = None,
        inference: SharedInference | None = None,
        bots: BotSettings | None = None,
        device: DeviceChoice = CPU,
        kind: type[RolloutHost] = RolloutHost,
        tell: Callable[[str], None] = ignore,
        warn: Callable[[str], None] = ignore,
        scored: MakeEnv | None = None,
    ) -> None:
        """Spawn the hosts.

        Args:
            runtime: Where they live.
            make_env: Makes the environments of a shard.
            spec: Of the environments.
            num_envs: Number of environments.
            shards: Number of shards; results depend on it.
            hosts: Number of hosts; results do not depend on it.
            resources: Of each host.
            restarts: How often each host is restarted.
            deadline: Seconds without a step after which a host that owes an answer is stuck and is restarted; None: never.
            leave: Whether trajectories stay with the runtime (`Rollout.left`), for trainers in other processes.
            profile: Collects the times of rollouts.
            inference: Servers that evaluate policies; None: copies in the hosts.
            bots: Where bots play, next to each host.
            device: Where copies compute.
            kind: Class of the hosts, whose name messages have.
            tell: Takes a sentence where environments were restarted.
            warn: Takes a sentence, once, where no episode ends.
            scored: Makes the environments in which matches are played, if they count other rewards.

        Raises:
            ScenarioError: For more shards than environments, or more hosts than shards.
        """
        self.spec, self.num_envs = spec, num_envs
        self.match_slot = 0 if scored is None else SCORED
        self.profile = profile or Timings()
        self._runtime = runtime
        self._shards = split_envs(num_envs, shards)
        self._sent: RecentCache[tuple[Policy, Ref]] = RecentCache(CACHE_BYTES, most=files_to_keep())
        self._open: list[HostsPending] = []  # requests that were started, and neither taken nor forgotten
        self._unwanted: list[PendingReply] = []  # of forgotten ones, that hosts may still be playing
        self._leave, self._tell, self._closing = leave, tell, max(_CLOSING, deadline or _IDLE_CLOSING)
        self._lives = 0  # restarts of hosts that were counted
        self._endless = EndlessWarning(warn, spec, self._shards[0].num_envs)
        self._blocks = [self._shards[b.first : b.first + b.num_envs] for b in split_envs(shards, hosts)]
        self._names = [f"{kind.called} {k}" for k in range(hosts)]
        self._hosts = [
            runtime.spawn(
                kind,
                HostSpec(
                    make_env,
                    block,
                    runtime.fetch,
                    client=f"worker {k}" if inference else "",
                    bots=bots or BotSettings(),
                    device=device,
                    scored=scored,
                ),
                resources=resources,
                restarts=restarts,
                heartbeat=True,
                name=self._names[k],
            )
            for k, block in enumerate(self._blocks)
        ]
        self._servers = Servers(runtime, inference, self._hosts, deadline=deadline) if inference else None
        excused = self._servers.unstick if self._servers else None
        self._watch = HostMonitor(runtime, self._hosts, deadline=deadline, excused=excused)

    @property
    def hosts(self) -> int:
        return len(self._hosts)

    def life(self, host: int) -> str:
        served = "" if self._servers is None else f".{self._servers.life(host)}"
        return f"{self._runtime.incarnation(self._hosts[host])}{served}"

    def playing(self, unit: str, amount: int) -> list[int]:
        return [
            k for k, block in enumerate(self._blocks) if unit == "decisions" or any(s.first < amount for s in block)
        ]

    def start(
        self,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]],
        *,
        task_slot: int = 0,
        hosts: Sequence[int] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> HostsPending:
        check_shares(request, len(self._shards))
        begun = perf_counter()
        sent = [(ref, self._send(ref, policy)) for ref, policy in policies]
        self._sent.trim(len(policies))
        self._unwanted = self._playing(self._unwanted)
        numbers = range(len(self._hosts)) if hosts is None else hosts
        partials = [self._ask(host, task_slot, request, sent) for host in numbers]
        pending = HostsPending(request, task_slot, perf_counter() - begun, sent, partials)
        self._open.append(pending)
        return pending

    def _ask(
        self, host: int, task_slot: int, request: RolloutRequest, sent: Sequence[tuple[PolicyRef, Ref]]
    ) -> _PartialResult:
        handle = self._hosts[host]
        runtime, life = self._runtime, self._runtime.incarnation(handle)
        self._watch.expect_reply(host)
        serving = self._servers.serving(host) if self._servers else None
        arguments = task_slot, request, sent, serving.peer if serving else None
        if not self._leave or request.learner is None:
            return _PartialResult(host, runtime.call(handle, "play", *arguments), life, serving=serving)
        left = runtime.call(handle, "collect", *arguments)
        return _PartialResult(host, runtime.call(handle, "collected_rollouts"), life, left, serving)

    def finish(
        self, pending: HostsPending, *, receive: Receive | None = None, on_progress: ProgressCallback | None = None
    ) -> Rollout:
        """Wait for a request and merge the hosts' answers, in the order of the shards.

        A host that dies and is restarted plays its share again, also where only its result is lost: whole episodes are the same again;
        episodes that were open from the last request are lost, and new ones begin in their place.
        """
        begun = perf_counter()
        look = None if on_progress is None else lambda: on_progress(self._episodes(pending))
        try:
            answers = self._answers(pending, pending.partials, look)
            while (left := self._received(pending, receive)) is None:
                lost = [p for p in pending.partials if self._runtime.incarnation(self._hosts[p.host]) != p.life]
                for partial in lost:
                    self._ask_again(pending, partial)
                answers |= self._answers(pending, lost, look)
        except BaseException:
            self.cancel(pending)
            raise
        rollouts = [rollout for partial in pending.partials for rollout in answers[partial.host]]
        return self._merged(pending, rollouts, left, perf_counter() - begun)

    def take(self, pending: HostsPending, *, receive: Receive | None = None) -> Rollout | None:
        begun = perf_counter()
        (partial,) = pending.partials
        self._watch.wait([PendingReply(partial.host, partial.answer)])
        answer = self._answer(partial)
        left = None if answer is None else self._received(pending, receive)
        if answer is None or left is None:
            self._open.remove(pending)
            return None
        return self._merged(pending, answer, left, perf_counter() - begun)

    def done(
        self, pending: Sequence[HostsPending], *, at_least: int, timeout: float | None = None
    ) -> list[HostsPending]:
        partials = [single.partials[0] for single in pending]
        with self.profile.part("rollout"):
            done = self._watch.wait(
                [PendingReply(p.host, p.answer) for p in partials], at_least=at_least, timeout=timeout
            )
        return [single for single, is_done in zip(pending, done, strict=True) if is_done]

    def cancel(self, pending: HostsPending) -> None:
        if pending not in self._open:
            return
        self._open.remove(pending)
        for partial in pending.partials:
            if not partial.answered:
                self._watch.answered(partial.host)
        self._unwanted = self._playing([*self._unwanted, *_owed(pending)])

    def close(self) -> None:
        """Close the environments and stop the hosts: those that are still playing immediately, others within the deadline. Raises EnvError,
        once all is closed, for environments that could not be closed."""
        owed = [*self._unwanted, *(answer for pending in self._open for answer in _owed(pending))]
        busy = {each.host for each in self._playing(owed)}
        answers = [self._runtime.call(host, "close") for host in self._hosts]
        done, late = self._runtime.wait(answers, at_least=len(answers), timeout=_CLOSING)
        slow = [answer for k, answer in enumerate(answers) if k not in busy and answer in late]
        if slow:
            more, slow = self._runtime.wait(slow, at_least=len(slow), timeout=self._closing - _CLOSING)
            done = [*done, *more]
        if slow:
            names = (name for name, answer in zip(self._names, answers, strict=True) if answer in slow)
            self._tell(
                f"the environments of {', '.join(names)} were not closed within {self._closing:g} seconds; their processes are ended "
                "now. If closing may take so long, raise runtime.deadline."
            )
        with ExitStack() as rest:
            if self._servers is not None:
                rest.callback(self._servers.close)
            for host in self._hosts:
                rest.callback(self._runtime.stop, host)
            for answer in done:
                with suppress(PartDied):  # then there is nothing to close
                    self._runtime.get(answer)

    def _playing(self, owed: Sequence[PendingReply]) -> list[PendingReply]:
        """Return those of these answers that are still missing."""
        if not owed:
            return []
        _, pending = self._runtime.wait([each.answer for each in owed], at_least=0, timeout=0.0)
        return [each for each in owed if each.answer in pending]

    def _answers(
        self, pending: HostsPending, partials: Sequence[_PartialResult], look: Callable[[], None] | None
    ) -> dict[int, list[Rollout]]:
        """Return what hosts bring, by host, however often they die and are made again meanwhile: one that has died is asked again at once,
        while the others go on. look: called while they are waited for."""
        answers: dict[int, list[Rollout]] = {}
        while left := [partial for partial in partials if partial.host not in answers]:
            owed = [PendingReply(partial.host, partial.answer) for partial in left]
            done = self._watch.wait(owed, timeout=None if look is None else rollouts.REPORT_SECONDS)
            if look is not None and not any(done):
                look()
            for partial in [partial for partial, is_done in zip(left, done, strict=True) if is_done]:
                answer = self._answer(partial)
                if answer is None:
                    self._ask_again(pending, partial)
                else:
                    answers[partial.host] = answer
        return answers

    def _answer(self, partial: _PartialResult) -> list[Rollout] | None:
        """Return what a host that is done brings; None if it, or the server that it asks, has died and was made again."""
        handle = self._hosts[partial.host]
        self._watch.answered(partial.host)
        partial.answered = True
        try:
            rollouts: list[Rollout] = self._runtime.get(partial.answer)
            return rollouts
        except PartDied:
            if self._runtime.incarnation(handle) == partial.life:
                if self._servers is None or partial.serving is None:
                    raise
                self._servers.mend(partial.serving)
            return None

    def _episodes(self, pending: HostsPending) -> int:
        """Return how many of a request's episodes have ended, as far as its hosts have said."""
        for partial in pending.partials:
            alive = self._runtime.incarnation(self._hosts[partial.host]) == partial.life
            if alive and self._runtime.wait([partial.answer], at_least=0, timeout=0.0)[0]:
                quotas = (shard.quota(pending.request.amount) for shard in self._blocks[partial.host])
                partial.episodes = sum(int(quota.sum()) for quota in quotas)
            else:
                self._ask_how_far(partial)
        return sum(partial.episodes for partial in pending.partials)

    def _ask_how_far(self, partial: _PartialResult) -> None:
        """Of a host that has not answered yet. One that is in a long step is not asked a second time before it has said how it is."""
        if partial.question is None:
            partial.question = self._runtime.heartbeat(self._hosts[partial.host])
        try:
            heartbeat = self._runtime.get(partial.question, timeout=_BRIEF)
        except TimeoutError:
            return
        except PartDied:  # as will show where its answer is waited for
            heartbeat = None
        partial.question, partial.episodes = None, 0 if heartbeat is None else int(heartbeat[0])
        if heartbeat is not None:
            self._endless(int(heartbeat[1]))

    def _ask_again(self, pending: HostsPending, partial: _PartialResult) -> None:
        again = self._ask(partial.host, pending.task_slot, pending.request, pending.sent)
        partial.answer, partial.life = again.answer, again.life
        partial.left, partial.serving = again.left, again.serving
        partial.episodes, partial.question, partial.answered = 0, None, False

    def _received(self, pending: HostsPending, receive: Receive | None) -> Sequence[Any] | None:
        """Return what hosts have left, where it was received; None if some of it is lost with a host, which was made again."""
        left = [partial.left for partial in pending.partials if partial.left is not None]
        if receive is None or not left:
            return left
        try:
            return receive(left)
        except PartDied:
            heartbeats = [self._runtime.heartbeat(self._hosts[partial.host]) for partial in pending.partials]
            self._runtime.wait(heartbeats, at_least=len(heartbeats), timeout=_HEARTBEAT_SECONDS)
            died = [
                self._has_died(partial, heartbeat)
                for partial, heartbeat in zip(pending.partials, heartbeats, strict=True)
            ]
            if not any(died):  # of all: each has to be noticed
                raise
            return None

    def _has_died(self, partial: _PartialResult, heartbeat: Ref) -> bool:
        """Return whether another life has taken the place of the one that played this. Raises PartDied if none is left."""
        handle = self._hosts[partial.host]
        try:
            _result_or_none(self._runtime, heartbeat)
        except TimeoutError:
            pass  # its process is frozen, and what it left is still there
        except PartDied:
            if self._runtime.incarnation(handle) == partial.life:
                raise
        return self._runtime.incarnation(handle) != partial.life

    def _merged(
        self, pending: HostsPending, rollouts: Sequence[Rollout], left: Sequence[Any], waited: float
    ) -> Rollout:
        self._open.remove(pending)
        rollout = replace(merge(rollouts), left=left)
        lives = sum(map(self._runtime.incarnation, self._hosts))
        if lives > self._lives:
            rollout = replace(rollout, counters={**rollout.counters, "worker_restarts": lives - self._lives})
            self._lives = lives
        if self._servers is not None and (restarts := self._servers.newly_restarted()):
            rollout = replace(rollout, counters={**rollout.counters, "server_restarts": restarts})
        report_faults(rollout.counters, self._tell)
        seconds = {name: value / len(self._hosts) for name, value in rollout.seconds.items()}
        self.profile.rollout(pending.seconds + waited, seconds, rollout.counters)
        return rollout

    def _send(self, ref: PolicyRef, policy: Policy | RemotePolicy) -> Ref:
        """Return a reference to the policy: the last one, if it is the same object, so that no host fetches it again."""
        if isinstance(policy, RemotePolicy):
            return policy.message
        if isinstance(policy, BotPolicy):  # which goes as it is
            return policy
        last = self._sent.find(ref)
        if last is not None and last[0] is policy:
            return last[1]
        message = PolicyMessage(policy)
        sent = self._runtime.put(message)
        self._sent.keep(ref, (policy, sent), message.size, series=(ref.population, ref.policy))
        return sent


def _owed(pending: HostsPending) -> list[PendingReply]:
    return [PendingReply(partial.host, partial.answer) for partial in pending.partials]
