r"""The rollout manager: gives orders to rollout hosts, wherever the runtime has put them, and merges what they bring.

order --> host 0 (shards 0, 1 …) --rollouts--+
      \-> host 1 (shards …)      --rollouts--+--> one rollout, in the order of the shards
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from ludus.envs.base import VectorEnv
from ludus.errors import PartDied
from ludus.policies.base import Policy
from ludus.profile import Profile
from ludus.rollout.base import Rollout, RolloutOrder
from ludus.rollout.host import KEPT, HostSpec, MakeEnv, Parcel, RolloutHost
from ludus.rollout.recent import Recent
from ludus.rollout.shards import check_portions, merge, shards_of
from ludus.runtime.base import Handle, Ref, Runtime
from ludus.types import EnvSpec, PolicyRef


class RolloutManager:
    """`num_envs` environments in `shards` shards, carried by `hosts` parts of the runtime. The hosts and their environments belong to
    it."""

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
        ready: VectorEnv | None = None,
        profile: Profile | None = None,
    ) -> None:
        """spec: of the environments. resources: that each host asks for. restarts: how often each is made again. ready: a vector made
        already, for the first shard; only where the runtime is this process. profile: what rollouts are added to. Raises ScenarioError
        for more shards than environments, or more hosts than shards."""
        self.spec, self.num_envs = spec, num_envs
        self.profile = profile or Profile()
        self._runtime = runtime
        self._shards = shards_of(num_envs, shards)
        self._sent: Recent[tuple[Policy, Ref]] = Recent(KEPT)
        self._hosts = [
            runtime.spawn(
                RolloutHost,
                HostSpec(
                    make_env,
                    self._shards[block.first : block.first + block.num_envs],
                    runtime.fetch,
                    ready=ready if block.index == 0 else None,
                ),
                resources=resources,
                restarts=restarts,
            )
            for block in shards_of(shards, hosts)
        ]

    def run(self, order: RolloutOrder, policies: Sequence[tuple[PolicyRef, Policy]]) -> Rollout:
        """Play an order with exactly the policies that it names. Raises what `RolloutWorker.play` raises, and ScenarioError if an order is
        too small for the shards."""
        check_portions(order, len(self._shards))
        begun = perf_counter()
        sent = [(ref, self._send(ref, policy)) for ref, policy in policies]
        self._sent.trim(len(policies))
        answers = [self._runtime.call(host, "play", order, sent) for host in self._hosts]
        lives = [self._runtime.incarnation(host) for host in self._hosts]
        found = [self._portions(*asked, order, sent) for asked in zip(self._hosts, answers, lives, strict=True)]
        rollout = merge([portion for portions in found for portion in portions])
        restarts = sum(self._runtime.incarnation(host) - life for host, life in zip(self._hosts, lives, strict=True))
        if restarts:
            rollout = replace(rollout, counters={**rollout.counters, "worker_restarts": restarts})
        seconds = {name: value / len(self._hosts) for name, value in rollout.seconds.items()}
        self.profile.rollout(perf_counter() - begun, seconds, rollout.counters)
        return rollout

    def _portions(
        self, host: Handle, answer: Ref, life: int, order: RolloutOrder, sent: Sequence[tuple[PolicyRef, Ref]]
    ) -> list[Rollout]:
        """What a host brings. One that dies and is made again plays its portion again: whole episodes come out the same; episodes that
        were open from the last order are lost, and new ones begin in their place."""
        while True:
            try:
                portions: list[Rollout] = self._runtime.get(answer)
                return portions
            except PartDied:
                if self._runtime.incarnation(host) == life:
                    raise
                life = self._runtime.incarnation(host)
                answer = self._runtime.call(host, "play", order, sent)

    def close(self) -> None:
        """Close the environments and give the hosts back."""
        for answer in [self._runtime.call(host, "close") for host in self._hosts]:
            self._runtime.get(answer)
        for host in self._hosts:
            self._runtime.stop(host)

    def _send(self, ref: PolicyRef, policy: Policy) -> Ref:
        """A reference to the policy: the last one, if it is the same object, so that no host fetches it again."""
        last = self._sent.find(ref)
        if last is not None and last[0] is policy:
            return last[1]
        parcel = Parcel(policy)
        sent = self._runtime.put(parcel)
        self._sent.keep(ref, (policy, sent), parcel.size)
        return sent


def manage(runtime: Runtime, env: VectorEnv) -> RolloutManager:
    """One host in this process around a vector that exists already."""
    return RolloutManager(runtime, _made_already, spec=env.spec, num_envs=env.num_envs, ready=env)


def _made_already(*, num_envs: int) -> VectorEnv:
    raise AssertionError(f"the vector of {num_envs} environments was given")
