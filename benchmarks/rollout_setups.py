"""What `benchmarks.rollout` measures: environments with a learner and opponents of one architecture, and clocks around their calls."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from ludus.core.types import EnvSpec, Mixture, PolicyRef, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

HIDDEN = (64, 64)


class Clock:
    """Seconds spent inside of some functions, while it is on. Calls within calls count once. What it measures of itself is known per call
    (`own`), and taken off."""

    def __init__(self) -> None:
        self.measured, self.calls = 0.0, 0
        self._inside = False
        self._functions: list[tuple[Any, str, Any, Any]] = []  # owner, name, with and without this clock
        self.own = self._calibrated()

    def clear(self) -> None:
        """Back to 0."""
        self.measured, self.calls = 0.0, 0

    @property
    def seconds(self) -> float:
        """Of the functions alone."""
        return self.measured - self.calls * self.own

    def around(self, owner: Any, name: str) -> None:
        """Put this clock around `owner.name` and turn it on."""
        function = getattr(owner, name)

        @wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            if self._inside:
                return function(*arguments, **keywords)
            self._inside = True
            begun = perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.measured += perf_counter() - begun
                self.calls += 1
                self._inside = False

        self._functions.append((owner, name, timed, function))
        setattr(owner, name, timed)

    def around_named(self, owner: str, name: str) -> None:
        """`around`, for an owner given as `module:Class`."""
        module, _, attribute = owner.partition(":")
        self.around(getattr(importlib.import_module(module), attribute), name)

    def turn(self, on: bool) -> None:
        """On, or off: then the functions are what they were."""
        for owner, name, timed, function in self._functions:
            setattr(owner, name, timed if on else function)

    def _calibrated(self, calls: int = 20_000) -> float:
        """Seconds that a call which does nothing seems to take, less those that it takes."""

        class Nothing:
            def call(self) -> None:
                pass

            def bare(self) -> None:
                pass

        self.around(Nothing, "call")
        nothing, found = Nothing(), []
        for _ in range(5):
            self.clear()
            begun = perf_counter()
            for _ in range(calls):
                nothing.bare()
            bare = perf_counter() - begun
            for _ in range(calls):
                nothing.call()
            found.append(max(self.measured - bare, 0.0) / calls)
        self._functions.clear()
        self.clear()
        return median(found)


@dataclass(frozen=True, slots=True)
class Setup:
    """id, options: the environment. decisions: of the learner in one order. bare: ("module:Class", method) whose calls are the
    environment's own work."""

    id: str
    num_envs: int
    decisions: int
    options: tuple[tuple[str, Any], ...] = ()
    bare: tuple[tuple[str, str], ...] = ()

    def make(self) -> VectorEnv:
        return make_env(self.id, num_envs=self.num_envs, **dict(self.options))

    def clock_environment(self, clock: Clock) -> None:
        """Put a clock around the bare environment's methods, before any is made."""
        for owner, name in self.bare:
            clock.around_named(owner, name)

    @property
    def openspiel(self) -> str:
        """The game, if it is one of OpenSpiel's."""
        return self.id.removeprefix("openspiel/") if self.id.startswith("openspiel/") else ""


def network(spec: EnvSpec, player: int) -> PolicySpec:
    """64 × 64 for vectors, Nature's convolutions for images, with a value."""
    agent = spec.agents_of(player)[0]
    shape, action = agent.observation.shape or (), agent.action
    assert isinstance(action, Discrete)
    if agent.observation.dtype == np.uint8:
        from ludus.policies.specs import cnn_spec

        return cnn_spec(shape=(shape[0], shape[1], shape[2]), actions=int(action.n))
    return mlp_spec(inputs=int(np.prod(shape)), actions=int(action.n), hidden=HIDDEN)


def fresh(spec: PolicySpec, seed: int) -> Policy:
    """A policy of random weights."""
    from ludus.policies.actor_critic import initial_weights

    return build_policy(spec, initial_weights(spec, np.random.default_rng(seed)))


class Player:
    """A rollout worker whose learner sits in seat 0, the other seats drawn uniformly from `opponents` policies each."""

    def __init__(self, env: VectorEnv, *, decisions: int, opponents: int = 1, tabulate: bool = True) -> None:
        spec = env.spec
        self._bank = LocalBank(spec, env.num_envs, tabulate=tabulate)
        self.worker = RolloutWorker(env, self._bank)
        learner = PolicyRef(0, "learner", 1)
        policies: list[tuple[PolicyRef, Policy]] = [(learner, fresh(network(spec, 0), 0))]
        marginals: dict[int, tuple[Sequence[PolicyRef], Sequence[float]]] = {}
        for p in range(1, spec.num_players):
            refs = [PolicyRef(p, f"{p}-{k}") for k in range(opponents)]
            policies += [(ref, fresh(network(spec, p), 100 * p + k)) for k, ref in enumerate(refs)]
            marginals[p] = (refs, [1 / opponents] * opponents)
        self._refs_and_policies = policies
        self._mixture = Mixture.product(marginals)
        self._decisions = decisions
        self._number = 0

    @property
    def policies(self) -> list[Policy]:
        """The learner, and the opponents."""
        return [policy for _, policy in self._refs_and_policies]

    def play(self) -> Rollout:
        """One more order, which goes on with the episodes of the last one."""
        request = RolloutRequest(
            learner=self._refs_and_policies[0][0],
            seats=(0,),
            opponents=self._mixture,
            unit="decisions",
            amount=self._decisions,
            seed=1,
            carry_on=self._number > 0,
            extras=("value",),
        )
        self._number += 1
        return self.worker.play(request, self._refs_and_policies)


_CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
_SPREAD = "mpe2.simple_spread.simple_spread:raw_env"
_FOUR = "pettingzoo.classic.connect_four.connect_four:raw_env"
_PONG = "envpool.atari:AtariGymnasiumEnvPool"
SETUPS = {
    "cartpole": Setup("gymnasium/CartPole-v1", 64, 128 * 64, bare=((_CARTPOLE, "step"), (_CARTPOLE, "reset"))),
    "mpe2": Setup(
        "mpe2/simple_spread_v3",
        64,
        3 * 64 * 32,
        options=(("teams", "one"),),
        bare=((_SPREAD, "step"), (_SPREAD, "observe"), (_SPREAD, "reset")),
    ),
    "connect_four": Setup("openspiel/connect_four", 64, 30_000, options=(("tree", "off"), ("fast", "off"))),
    "pettingzoo": Setup(
        "pettingzoo/connect_four_v3", 64, 64 * 32, bare=((_FOUR, "step"), (_FOUR, "observe"), (_FOUR, "reset"))
    ),
    "pong": Setup("envpool/Pong-v5", 64, 64 * 16, bare=((_PONG, "step"), (_PONG, "reset"))),
}
