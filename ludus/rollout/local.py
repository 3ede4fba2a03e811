"""Rollouts in this process: one host, which plays a request as soon as it is started. `ludus.rollout.manager` is for hosts elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

from ludus.core.timings import Timings
from ludus.core.types import CPU, DeviceChoice, EnvSpec, PolicyRef
from ludus.envs.base import VectorEnv
from ludus.policies.base import Policy
from ludus.policies.bots import BotSettings
from ludus.rollout import rollouts
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.host import SCORED, HostSpec, MakeEnv, RolloutHost
from ludus.rollout.rollouts import ENV_FAULTS, Pending, ProgressCallback, Receive, RemotePolicy, Rollouts
from ludus.rollout.shards import check_shares, merge, split_envs
from ludus.rollout.worker import EndlessWarning


@dataclass(frozen=True, slots=True, eq=False)
class LocalPending(Pending):
    """A request that was played. answer: one rollout per shard, or what playing it raised."""

    answer: list[Rollout] | Exception


class StepReporter:
    """Tells, between two steps, how many of a match's episodes have ended, and whether none does. It is no method of the owner of hosts,
    which would then wait for the garbage collector."""

    def __init__(self, unended: Callable[[int], None]) -> None:
        """unended: takes `RolloutWorker.unended`."""
        self._unended = unended
        self._on_progress: ProgressCallback | None = None
        self._next = 0.0

    @contextmanager
    def reporting_to(self, on_progress: ProgressCallback | None) -> Iterator[None]:
        """Report to this callback inside of the block."""
        self._on_progress, self._next = on_progress, monotonic() + rollouts.REPORT_SECONDS
        try:
            yield
        finally:
            self._on_progress = None

    def __call__(self, standing: Callable[[], tuple[int, int]]) -> None:
        """Report, between two steps."""
        if (now := monotonic()) >= self._next:
            self._next = now + rollouts.REPORT_SECONDS
            ended, unended = standing()
            self._unended(unended)
            if self._on_progress is not None:
                self._on_progress(ended)


class LocalRollouts(Rollouts[LocalPending]):
    """Runs `num_envs` environments in `shards` shards in this process. A request is played when it is started; what playing it raises is
    raised when it is finished."""

    def __init__(
        self,
        make_env: MakeEnv,
        *,
        spec: EnvSpec,
        num_envs: int,
        shards: int = 1,
        ready: VectorEnv | None = None,
        bots: BotSettings | None = None,
        device: DeviceChoice = CPU,
        kind: type[RolloutHost] = RolloutHost,
        tell: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        scored: MakeEnv | None = None,
    ) -> None:
        """Create the environments, except those of the first shard that are `ready`. The others are as in `RolloutManager`."""
        self.spec, self.num_envs, self.profile = spec, num_envs, Timings()
        self.match_slot = 0 if scored is None else SCORED
        self._shards, self._tell = split_envs(num_envs, shards), tell
        self._between = StepReporter(EndlessWarning(warn, spec, self._shards[0].num_envs))
        self._host = kind(
            HostSpec(
                make_env,
                self._shards,
                ready=ready,
                bots=bots or BotSettings(),
                device=device,
                scored=scored,
                between=self._between,
            )
        )

    @staticmethod
    def around(env: VectorEnv) -> LocalRollouts:
        """Return rollouts in a vector that exists already."""
        return LocalRollouts(_is_started, spec=env.spec, num_envs=env.num_envs, ready=env)

    @property
    def hosts(self) -> int:
        return 1

    def life(self, host: int) -> str:
        return "0"

    def playing(self, unit: str, amount: int) -> list[int]:
        return [0]

    def start(
        self,
        request: RolloutRequest,
        policies: Sequence[tuple[PolicyRef, Policy | RemotePolicy]],
        *,
        task_slot: int = 0,
        hosts: Sequence[int] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> LocalPending:
        check_shares(request, len(self._shards))
        begun = perf_counter()
        answer: list[Rollout] | Exception
        with self._between.reporting_to(on_progress):
            try:
                answer = self._host.play(task_slot, request, policies)
            except Exception as error:  # noqa: BLE001 (held for `finish`)
                answer = error
        return LocalPending(request, task_slot, perf_counter() - begun, answer)

    def finish(
        self, pending: LocalPending, *, receive: Receive | None = None, on_progress: ProgressCallback | None = None
    ) -> Rollout:
        if isinstance(pending.answer, Exception):
            raise pending.answer
        rollout = pending.answer[0] if len(pending.answer) == 1 else merge(pending.answer)
        if faults := rollout.counters.get("env_restarts"):
            self._tell(ENV_FAULTS.format(faults))
        self.profile.rollout(pending.seconds, rollout.seconds, rollout.counters)
        return rollout

    def take(self, pending: LocalPending, *, receive: Receive | None = None) -> Rollout:
        return self.finish(pending)

    def done(
        self, pending: Sequence[LocalPending], *, at_least: int, timeout: float | None = None
    ) -> list[LocalPending]:
        return list(pending)

    def cancel(self, pending: LocalPending) -> None:
        return None

    def close(self) -> None:
        self._host.close()


def _is_started(*, num_envs: int) -> Any:
    raise AssertionError(f"the vector of {num_envs} environments was given")
