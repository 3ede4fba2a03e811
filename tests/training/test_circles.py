"""What a run has made goes when it is over, not when Python next looks for circles, which may be many runs later: sweeps in one process
would hold the networks and tables of all of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ludus import load_scenario
from ludus.runs.runner import run

_LITTLE = ("algorithm.hidden=[8]", "evaluation.episodes=2")
_RUNS = {
    "ppo": ("kuhn", "algorithm=ppo", "generations=2", "response.episodes=100"),
    "mmd": ("leduc-mmd", "env.id=openspiel/kuhn_poker", "generations=1", "response.episodes=100"),
    "dqn": ("cartpole-dqn", "algorithm.min_size=100", "response.decisions=200", *_LITTLE),
    "r2d2": ("memory-r2d2", "response.decisions=1050", *_LITTLE),
    "sac": ("pendulum", "algorithm.start_decisions=100", "response.decisions=150", *_LITTLE),
}


def left() -> list[str]:
    """The types of what is there of the parts that a run is made of."""
    own = (
        "ludus.training.",
        "ludus.rollout.",
        "ludus.algorithms.",
        "ludus.replay.",
        "ludus.runs.",
        "ludus.storage.",
    )
    found = (type(o) for o in gc.get_objects())
    return sorted(t.__name__ for t in found if str(t.__module__).startswith(own))


@pytest.mark.slow
def test_nothing_of_a_run_waits_for_the_collector_of_circles(tmp_path: Path) -> None:
    for name, (preset, *overrides) in _RUNS.items():
        run(load_scenario(preset, overrides), run_dir=tmp_path / name, report=False)  # what is compiled is kept
    gc.collect()
    before = left()
    gc.disable()
    try:
        for name, (preset, *overrides) in _RUNS.items():
            run(load_scenario(preset, overrides), run_dir=tmp_path / f"{name} again", report=False)
            assert left() == before, name
    finally:
        gc.enable()
