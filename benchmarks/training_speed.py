"""How fast learners learn, one core: Ludus beside a bare loop that does nothing else, and beside other libraries.

    python -m benchmarks.training_speed [--quick]

PPO on CartPole, collecting and learning, in decisions per second, at each library's own setting (`benchmarks/peers/training.py`: the same
networks, batch, minibatches, epochs and number of environments for all) and at one that suits Ludus; and updates per second of DQN and SAC
at Stable-Baselines3's. The limit is a loop of forward pass, loss, backward pass and torch's Adam on prepared tensors, and for PPO the
environments' steps with a policy call each (`training_speed_limit.py`, `training_speed_updates_limit.py`). Ludus's PPO figures are of
whole runs as a user's, database, metrics and barriers included.

CartPole is Gymnasium's native vector, or as many Python environments. Figures are by the wall clock, so nothing else may run on the core.
What each peer is, and what we did for it: `benchmarks/peers/README.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks.harness import Bar, Benchmark, Contestant, Medians
from benchmarks.peers.collecting import per_wall
from benchmarks.peers.training import REPLAY, SETTINGS, cases

PEERS = {
    "sb3": "SB3",
    "pufferlib": "PufferLib",
    "sample_factory": "Sample Factory",
    "tianshou": "Tianshou",
    "torchrl": "torchrl",
    "rllib": "RLlib",
}
"""Settings that have a peer, and its name."""

FOLDERS = {name: f"{name}_rollout" for name in ("sb3", "sample_factory", "tianshou", "torchrl")}
"""Peers that another benchmark has set up."""

EXTRA = {"pufferlib": ("pufferlib/c",)}
"""Cases of a peer alone, whose figures stand beside the others."""

WANTED = {"sb3": ">= 1.6"}
"""Times faster; of the others: faster."""


def _contestant(
    name: str, *named: str, module: str, peer: str | None = None, quick: bool = True, orders: int = 5
) -> Contestant:
    return Contestant(
        name=name,
        module=module,
        arguments=("--case", *named, "--orders", str(orders)),
        peer=peer,
        seeds=(0, 1, 2),
        quick_seeds=(0,) if quick else (),
        quick_arguments=("--orders", "5"),
    )


def folder_of(setting: str) -> str:
    """Of the peer of a setting, under `benchmarks/peers`."""
    return FOLDERS.get(setting, f"{setting}_training")


def _contestants() -> Iterator[Contestant]:
    updates = [f"{setting}/update" for setting in SETTINGS]
    yield _contestant("limit, PPO", *cases(*SETTINGS), *updates, module="benchmarks.training_speed_limit", orders=12)
    yield _contestant("Ludus, PPO", *cases(*SETTINGS), module="benchmarks.training_speed_run", orders=12)
    for setting, name in PEERS.items():
        folder = folder_of(setting)
        module = f"benchmarks.peers.{folder}.{'training' if setting in FOLDERS else 'run'}"
        own = EXTRA.get(setting, ())
        yield _contestant(f"{name}, PPO", *cases(setting), *own, module=module, peer=folder, quick=False)
    yield _contestant("limit, updates", *REPLAY, module="benchmarks.training_speed_updates_limit")
    yield _contestant("Ludus, updates", *REPLAY, module="benchmarks.training_speed_updates_run")
    module, peer = "benchmarks.peers.sb3_rollout.updates", "sb3_rollout"
    yield _contestant("SB3, updates", *REPLAY, module=module, peer=peer, quick=False)


def _relative(case: str, kind: str = "PPO", unit: str = "steps") -> Callable[[Medians], float]:
    """Ludus's speed, the limit's being 1."""
    figure = per_wall(case, unit)
    return lambda medians: medians(f"Ludus, {kind}", figure) / medians(f"limit, {kind}", figure)


def _times(case: str, peer: str) -> Callable[[Medians], float]:
    """How many times faster than a peer Ludus is."""
    figure = per_wall(case)
    return lambda medians: medians("Ludus, PPO", figure) / medians(f"{peer}, PPO", figure)


def _times_updates(kind: str) -> Callable[[Medians], float]:
    figure = per_wall(kind, "updates")
    return lambda medians: medians("Ludus, updates", figure) / medians("SB3, updates", figure)


BENCHMARK = Benchmark(
    name="training_speed",
    contestants=tuple(_contestants()),
    bars=(
        *(Bar(f"PPO, {case}, relative to the limit", ">= 0.85", _relative(case)) for case in cases(*SETTINGS)),
        *(
            Bar(f"PPO, {case}, times {name}", WANTED.get(setting, "> 1"), _times(case, name), unit="x")
            for setting, name in PEERS.items()
            for case in cases(setting)
        ),
        *(
            Bar(f"{kind.upper()}, updates relative to the limit", ">= 0.85", _relative(kind, "updates", "updates"))
            for kind in REPLAY
        ),
        *(Bar(f"{kind.upper()}, updates, times SB3", ">= 1.5", _times_updates(kind), unit="x") for kind in REPLAY),
    ),
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
