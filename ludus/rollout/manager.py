"""The rollout manager: gives orders to rollout workers, wherever the runtime has put them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from ludus.envs.base import VectorEnv
from ludus.policies.base import Policy
from ludus.profile import Profile
from ludus.rollout.base import Rollout, RolloutOrder
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.runtime.base import Runtime
from ludus.types import PolicyRef


class RolloutManager:
    """One worker around one vector of environments, spawned through `runtime`. The worker and its environment belong to it."""

    def __init__(
        self,
        runtime: Runtime,
        env: VectorEnv,
        *,
        make: Callable[[VectorEnv], RolloutWorker] | None = None,
        profile: Profile | None = None,
    ) -> None:
        """make: builds the worker where the runtime puts it; default `make_worker`. profile: what rollouts are added to."""
        self.spec, self.num_envs = env.spec, env.num_envs
        self.profile = profile or Profile()
        self._runtime = runtime
        self._worker = runtime.spawn(make or make_worker, env)

    def run(self, order: RolloutOrder, policies: Sequence[tuple[PolicyRef, Policy]]) -> Rollout:
        """Play an order with exactly the policies that it names. Raises what `RolloutWorker.play` raises."""
        begun = perf_counter()
        rollout: Rollout = self._runtime.get(self._runtime.call(self._worker, "play", order, policies))
        self.profile.rollout(perf_counter() - begun, rollout.seconds, rollout.counters)
        return rollout

    def close(self) -> None:
        """Close the environments and give the worker back."""
        self._runtime.get(self._runtime.call(self._worker, "close"))
        self._runtime.stop(self._worker)


def make_worker(env: VectorEnv) -> RolloutWorker:
    """A worker with local copies of the policies."""
    return RolloutWorker(env, LocalBank(env.spec, env.num_envs))
