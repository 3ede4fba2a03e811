"""Training tasks whose games are played where their learner computes: when that is so, and how they collect then.

learner's device:  vector of games --timesteps--> learner and opponents act --actions--> vector
                   ... --Block--> learner                  (the host: requests, counts, results of episodes)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.common.base import CollectConfig
from ludus.algorithms.common.device_policy import DevicePolicy, SupportsOnDevice, acts_on_device
from ludus.backend.device import Placement
from ludus.core.compilation import COMPILATION
from ludus.core.errors import ConfigError, PolicyError, TrainingError
from ludus.core.machine import out_of_memory
from ludus.core.recorders import Timings
from ludus.core.types import EnvSpec, PolicyRef, TrainingTask
from ludus.envs.base import VectorEnv
from ludus.envs.device_vector import DeviceVectorEnv, OffersDevice
from ludus.envs.tree.stepping import TreeDeviceEnv
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy
from ludus.rollout.base import RecentCache, RolloutRequest
from ludus.rollout.host import CACHE_BYTES
from ludus.rollout.ondevice import DevicePlay, NetworkOpponent, Networks, PolicyTables
from ludus.rollout.ondevice_trees import TreePlay, TreeRollouts
from ludus.rollout.opponents import live_refs
from ludus.rollout.rollouts import RemotePolicy
from ludus.training.collecting import Collected, MakeRequest, Policies
from ludus.training.trainer import Trainer

PlacementRequest = Literal["auto", "host", "device"]


@dataclass(slots=True, eq=False)
class DeviceVectors:
    """The vectors on devices that tasks of a run play on, one for each task slot, which is kept from task to task. placement_request: the
    option `runtime.environments`. env: a vector of the same game in memory. round_seconds: by task slot, what a round has last taken."""

    placement_request: PlacementRequest
    env: VectorEnv
    num_envs: int
    round_seconds: dict[int, float] = field(default_factory=dict)
    _made: dict[int, DeviceVectorEnv] = field(default_factory=dict)
    _rollouts: dict[int, TreeRollouts] = field(default_factory=dict)
    _tables: RecentCache[NDArray[np.float64]] = field(default_factory=lambda: RecentCache(CACHE_BYTES))

    def make(self, device: torch.device, *, num_envs: int, task_slot: int) -> DeviceVectorEnv:
        """Raises what `OffersDevice.on_device` raises."""
        vector = self._made.pop(task_slot, None)
        if vector is not None and (vector.device, vector.num_envs) != (device, num_envs):
            vector.close()
            vector = None
        if vector is None:
            assert isinstance(self.env, OffersDevice)
            vector = self.env.on_device(device, num_envs=num_envs)
        self._made[task_slot] = vector
        return vector

    def rollouts(self, vector: TreeDeviceEnv, task_slot: int) -> TreeRollouts:
        """Return what plays whole games on the vector of a task slot, with the graphs of earlier tasks."""
        if task_slot not in self._rollouts or self._rollouts[task_slot].env is not vector:
            self._rollouts[task_slot] = TreeRollouts(vector)
        return self._rollouts[task_slot]

    def table(self, ref: PolicyRef, policy: Policy, player: int) -> NDArray[np.float64]:
        """Return the table of a policy in an enumerated game; those of frozen policies that were used last are kept."""
        if (cached := self._tables.find((ref, player))) is not None:
            return cached
        enumeration = self.env.spec.enumeration
        assert enumeration is not None
        table = policy.tabulate(enumeration, player, mode=ref.mode)
        if table is None:
            raise PolicyError(
                f"the policy {ref.policy!r} has no table of probabilities; give runtime.environments=host."
            )
        if ref.version == 0:  # a member; others are versions of learners in progress
            self._tables.keep((ref, player), table, table.nbytes)
            self._tables.trim(0)
        return table


def select_collector(
    vectors: DeviceVectors,
    trainer: Trainer | None,
    task: TrainingTask,
    collect: CollectConfig,
    *,
    frozen: Policies,
    asynchronous: bool,
) -> SupportsOnDevice | str:
    """Decide whether a task's games are played on its learner's device; the only function that does. Return the learner that they are
    played for; or why they are played in memory, "" where nobody asks. With "auto" they are played there where the learner is on a card.

    trainer: None where it is in another process. frozen: the opponents whose weights stay. asynchronous: whether workers play each for
    itself. Raises ConfigError where it was asked for ("device") and is not possible.
    """
    if vectors.placement_request == "host":
        return ""
    place = None if trainer is None else trainer.placement
    if vectors.placement_request == "auto" and (place is None or place.device == "cpu"):
        return ""
    learner = ELSEWHERE if trainer is None else trainer.in_place
    reason = learner if isinstance(learner, str) else why_not_on_device(vectors.env, collect, asynchronous=asynchronous)
    reason = reason or _why_not(vectors.env.spec, task, collect, frozen=frozen)
    if reason and vectors.placement_request == "device":
        raise refused(f"task {task.id}", reason)
    return reason or learner


ELSEWHERE = "its learner is in another process"


def refused(who: str, why: str) -> ConfigError:
    """Return the error of a device that was requested and cannot be used."""
    return ConfigError(f"runtime.environments=device was given, and {who} cannot do that: {why}. Leave it out.")


def why_not_on_device(env: VectorEnv, collect: CollectConfig, *, asynchronous: bool) -> str:
    """Return why no task of a learner that collects so can be played on a device, whatever its opponents; "": nothing is against it."""
    why = {
        f"{env.spec.id} is stepped in memory only, or what is around it (env.tree, env.workers, env.wrappers)": not isinstance(
            env, OffersDevice
        ),
        "workers play each for itself (runtime.mode=async)": asynchronous,
        "its algorithm records more than actions and log-probabilities": bool(collect.extras),
        "its algorithm plays in several modes": len(collect.modes) > 1,
        "its algorithm processes what it did (algorithm.processing)": bool(collect.processing),
    }
    return next((reason for reason, applies in why.items() if applies), "")


def _why_not(spec: EnvSpec, task: TrainingTask, collect: CollectConfig, *, frozen: Policies) -> str:
    live = live_refs(task.opponents)
    always = task.seats if task.together == 1.0 or len(task.seats) == 1 else ()
    if len(always) == spec.num_players:  # nobody else plays, whomever the task names
        live, frozen = (), ()
    others = any((ref.population, ref.policy) != (task.population, task.policy) for ref in live)
    strange = next(((ref, policy) for ref, policy in frozen if not _plays(policy, ref.mode, spec)), None)
    why = {
        "its opponents learn, and its episodes stay open from one rollout to the next": (
            collect.unit == "decisions" and bool(live)
        ),
        "its opponents learn, too, and are no tables": others and spec.enumeration is None,
    }
    if strange is not None:
        ref, policy = strange
        kind = "" if isinstance(policy, RemotePolicy) else f", of kind {policy.spec.kind!r},"
        why[f"the opponent {ref.policy!r}{kind} plays in memory only"] = True
    return next((reason for reason, applies in why.items() if applies), "")


def _plays(policy: Policy | RemotePolicy, mode: str, spec: EnvSpec) -> bool:
    if isinstance(policy, RemotePolicy | BotPolicy) or mode not in policy.modes:
        return False
    return policy.memory_shape is None if spec.enumeration is not None else acts_on_device(policy, mode)


@dataclass(slots=True)
class _Opponents:
    """The policies of a request, as they play on the device (`Opponent`)."""

    vectors: DeviceVectors
    placement: Placement
    policies: dict[PolicyRef, Policy | RemotePolicy] = field(default_factory=dict)

    def table(self, ref: PolicyRef, player: int) -> NDArray[np.float64]:
        return self.vectors.table(ref, self._policy(ref), player)

    def acts(self, ref: PolicyRef) -> NetworkOpponent:
        return DevicePolicy(self._policy(ref), ref.mode, self.placement)

    def _policy(self, ref: PolicyRef) -> Policy:
        policy = self.policies[ref]
        assert not isinstance(policy, RemotePolicy)
        return policy


class OnDeviceCollector:
    """Plays on the learner's device, by the learner itself; nobody else is asked (`Collector`)."""

    def __init__(
        self,
        vectors: DeviceVectors,
        learner: SupportsOnDevice,
        request: MakeRequest,
        collect: CollectConfig,
        *,
        task_slot: int,
        profile: Timings,
        each: bool,
    ) -> None:
        """each: whether somebody looks at episodes one by one."""
        self._vectors, self._learner, self._request, self._collect = vectors, learner, request, collect
        self._profile, self._each, self._task_slot, self._open = profile, each, task_slot, False
        self._opponents = _Opponents(vectors, learner.placement)
        self._play: DevicePlay | TreePlay | None = None

    def begin(self) -> None:
        return None

    def take(self) -> Collected:
        """Play a request. Raises TrainingError where the device has no memory for it, and what `OffersDevice.on_device` raises."""
        request, policies = self._request(carry_on=self._open, host=0)
        self._opponents.policies = dict(policies)
        with self._enough_memory(), self._profile.part("device"):
            playing = self._playing(request)
            with COMPILATION.of("games on the device"):
                rollout = playing.play(request, each=self._each)
        self._open = self._collect.unit == "decisions"
        self._profile.rollout(0.0, {}, rollout.counters)
        return Collected((rollout,))

    @contextmanager
    def _enough_memory(self) -> Iterator[None]:
        """Raise TrainingError where the device has not enough."""
        try:
            yield
        except Exception as error:
            if (full := out_of_memory(error)) is None:
                raise
            raise TrainingError(
                f"there was not enough memory to play {self._collect.amount:,} {self._collect.unit} at once on "
                f"{self._learner.placement.device}: {full}. Give a smaller algorithm.batch, or runtime.environments=host."
            ) from error

    def _playing(self, request: RolloutRequest) -> DevicePlay | TreePlay:
        if self._play is None:
            whole = self._collect.unit == "episodes"
            device, envs = self._learner.placement.torch, self._collect.amount if whole else self._vectors.num_envs
            env = self._vectors.make(device, num_envs=envs, task_slot=self._task_slot)
            if whole and isinstance(env, TreeDeviceEnv):
                rollouts = self._vectors.rollouts(env, self._task_slot)
                self._play = TreePlay(rollouts, self._learner, self._opponents)
            else:
                self._play = DevicePlay(env, self._players(request))
        return self._play

    def _players(self, request: RolloutRequest) -> PolicyTables | Networks:
        spec = self._vectors.env.spec
        if spec.enumeration is not None:
            return PolicyTables(spec, self._learner, self._opponents, request.seats)
        return Networks(self._learner, self._opponents)

    def prefetch_requests(self) -> None:
        return None

    def on_published(self) -> None:
        return None

    def drain(self) -> Collected:
        self._open = False
        return Collected(())

    def close(self) -> None:
        """Keep the vector, for the next task."""
        self._play = None
