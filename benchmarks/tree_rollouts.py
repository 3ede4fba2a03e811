"""Decisions per second on Leduc poker, one core: Ludus's rollout worker on the compiled tree, beside a bare pyspiel loop.

    python -m benchmarks.tree_rollouts [--quick]

A decision is one player having to act: stepping the game, evaluating the policy, sampling the action, and drawing each episode's
opponent anew from 20 policies are all in. `tables` plays tabulated policies, `network` evaluates a 64 x 64 network (tanh) on every
row; the `learner` variants also write player 0's trajectories. `pyspiel` steps a single OpenSpiel state at a time and plays uniformly
at random: no policy, no opponents, no trajectories. Figures are medians over the orders of a process: per second
of the processor ("core second") and by the wall clock.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel")
KINDS = ("tables", "tables learner", "network", "network learner", "general", "pyspiel")
PER_CORE = "decisions per core second"
OPPONENTS = 20
_MODULE = "benchmarks.tree_rollouts"


def _contestant(kind: str, *, environments: int) -> Contestant:
    return Contestant(
        name=kind,
        module=_MODULE,
        arguments=("--worker", kind, "--environments", str(environments)),
        quick_arguments=("--orders", "3"),
    )


BENCHMARK = Benchmark(
    name="tree_rollouts",
    contestants=(
        _contestant("tables", environments=16384),
        _contestant("tables learner", environments=16384),
        _contestant("network", environments=8192),
        _contestant("network learner", environments=8192),
        _contestant("general", environments=1024),
        _contestant("pyspiel", environments=1),
    ),
    bars=(
        Bar("tables", ">= 8000000", lambda medians: medians("tables", PER_CORE), unit="/s"),
        Bar("network", ">= 800000", lambda medians: medians("network", PER_CORE), unit="/s"),
    ),
)


def _ludus(kind: str, environments: int, seed: int) -> Callable[[int], int]:
    """A function that plays one order (its number gives the seed) and returns how many decisions that were."""
    import torch

    from ludus.core.types import Mixture, PolicyRef
    from ludus.envs.openspiel.vector import OpenSpielVectorEnv
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.vector import TreeVectorEnv
    from ludus.policies.actor_critic import initial_weights
    from ludus.policies.actor_critic_policy import ActorCriticPolicy
    from ludus.policies.specs import mlp_spec
    from ludus.rollout.base import RolloutRequest
    from ludus.rollout.inference.local import LocalBank
    from ludus.rollout.worker import RolloutWorker

    torch.set_num_threads(1)
    general = kind == "general"
    env = (
        OpenSpielVectorEnv("leduc_poker", environments)
        if general
        else TreeVectorEnv(compile_tree("leduc_poker"), environments)
    )
    rng = np.random.default_rng(seed)
    spec = mlp_spec(inputs=30, actions=3, hidden=[64, 64])
    policies = [ActorCriticPolicy(spec, initial_weights(spec, rng)) for _ in range(2 + OPPONENTS)]
    refs = [PolicyRef(0, "learner", 1), PolicyRef(0, "first"), *(PolicyRef(1, f"{k}") for k in range(OPPONENTS))]
    bank = LocalBank(env.spec, environments, tabulate=kind.startswith("tables"))
    bank.load(list(zip(refs, policies, strict=True)))
    worker = RolloutWorker(env, bank)
    learner = refs[0] if kind.endswith("learner") else None
    second = {1: (refs[2:], [1 / OPPONENTS] * OPPONENTS)}
    mixture = Mixture.product(second if learner else {0: ([refs[1]], [1.0]), **second})
    amount = environments * (2 if general else 8 if kind.startswith("network") else 40)

    def play(number: int) -> int:
        request = RolloutRequest(
            learner, (0,) if learner else (), mixture, "episodes", amount, seed=1000 * seed + number
        )
        return worker.run(request).counters["decisions"]

    return play


def _pyspiel(seed: int) -> Callable[[int], int]:
    import pyspiel

    game = pyspiel.load_game("leduc_poker")

    def play(number: int) -> int:
        rng = random.Random(1000 * seed + number)
        decisions = 0
        for _ in range(5000):
            state = game.new_initial_state()
            while not state.is_terminal():
                if state.is_chance_node():
                    outcomes = state.chance_outcomes()
                    state.apply_action(outcomes[int(rng.random() * len(outcomes))][0])  # Leduc's chance is uniform
                else:
                    actions = state.legal_actions()
                    state.apply_action(actions[int(rng.random() * len(actions))])
                    decisions += 1
            state.returns()
        return decisions

    return play


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--environments", type=int, required=True)
    parser.add_argument("--orders", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    play = _pyspiel(args.seed) if args.worker == "pyspiel" else _ludus(args.worker, args.environments, args.seed)
    play(0)  # compiles, and grows the buffers
    lines = Lines(PACKAGES)
    core, wall = [], []
    for number in range(1, args.orders + 1):
        cpu, clock = time.process_time(), time.perf_counter()
        decisions = play(number)
        core.append(decisions / (time.process_time() - cpu))
        wall.append(decisions / (time.perf_counter() - clock))
    lines.figures({PER_CORE: median(core), "decisions per wall second": median(wall)})
    return 0


if __name__ == "__main__":
    sys.exit(_work(sys.argv[1:]) if "--worker" in sys.argv else BENCHMARK.main())
