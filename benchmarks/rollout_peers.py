"""Steps per second that rollouts collect, one core: Ludus's rollout worker beside Stable-Baselines3, torchrl, Tianshou and Sample Factory.

    python -m benchmarks.rollout_peers [--quick]

Each collects on-policy data of 64 environments in fragments of 128 steps: actions sampled from a 64 x 64 network (tanh;
Nature CNN for Pong) with a value head on the same trunk, log-probabilities and values recorded (but for Tianshou), no
learning. CartPole is Gymnasium's native vector, EnvPool's, and 64 Python environments in each one's own vectoriser; Pong
is EnvPool's, 84 x 84, four frames; connect_four is PettingZoo's without its checking wrappers. There one
network decides for both players, and the decisions of both are recorded. A step is one decision of one player.

Figures are medians over the orders of a process: per second of the processor ("core second") and by the wall clock. A peer is
compared with Ludus on the environment on which that peer is fastest. What each peer is, and what we did for it:
`benchmarks/peers/README.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks.harness import Bar, Benchmark, Contestant, Medians
from benchmarks.peers.collecting import per_core

CASES = {
    "cartpole": ("cartpole/gymnasium", "cartpole/envpool", "cartpole/python"),
    "pong": ("pong/envpool",),
    "connect_four": ("connect_four/pettingzoo",),
}
PEERS = {"SB3": "sb3", "torchrl": "torchrl", "Tianshou": "tianshou", "Sample Factory": "sample_factory"}


def _contestant(name: str, task: str, *, module: str, peer: str | None = None) -> Contestant:
    return Contestant(
        name=f"{name}, {task}",
        module=module,
        arguments=("--case", *CASES[task]),
        peer=peer,
        seeds=(0,) if task == "pong" else (0, 1, 2),
        quick_seeds=() if peer else (0,),
        quick_arguments=("--orders", "3"),
    )


def _contestants(task: str) -> Iterator[Contestant]:
    yield _contestant("Ludus", task, module="benchmarks.rollout_run")
    for name, folder in PEERS.items():
        yield _contestant(name, task, module=f"benchmarks.peers.{folder}_rollout.run", peer=f"{folder}_rollout")


def _times(task: str, *names: str) -> Callable[[Medians], float]:
    """How many times faster than the best of these peers Ludus is, on the environment on which that one is fastest."""

    def value(medians: Medians) -> float:
        best, case = max((medians(f"{name}, {task}", per_core(case)), case) for name in names for case in CASES[task])
        return medians(f"Ludus, {task}", per_core(case)) / best

    return value


BENCHMARK = Benchmark(
    name="rollout_peers",
    contestants=tuple(contestant for task in CASES for contestant in _contestants(task)),
    bars=(
        Bar("cartpole, times the best peer, aim", ">= 5", _times("cartpole", *PEERS), unit="x"),
        *(Bar(f"{task}, times {name}", "> 1", _times(task, name), unit="x") for task in CASES for name in PEERS),
    ),
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
