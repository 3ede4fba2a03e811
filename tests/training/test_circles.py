"""What a run has made goes when it is over, not when Python next looks for circles, which may be many runs later: sweeps in one process
would hold the networks and tables of all of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ludus import load_scenario
from ludus.driver.runner import run

_RUNS = {
    "ppo": ("leduc", "generations=2", "response.episodes=500"),
    "mmd": ("leduc-mmd", "generations=1", "response.episodes=500"),
    "dqn": ("cartpole-dqn", "response.decisions=1500", "evaluation.episodes=2"),
    "r2d2": ("memory-r2d2", "response.decisions=1500", "evaluation.episodes=2"),
    "sac": ("pendulum", "algorithm.start_decisions=300", "response.decisions=400", "evaluation.episodes=2"),
}


def left() -> list[str]:
    """The types of what is there of the parts that a run is made of."""
    own = (
        "ludus.training.",
        "ludus.rollout.",
        "ludus.learners.",
        "ludus.replay.",
        "ludus.driver.",
        "ludus.storage.",
    )
    found = (type(o) for o in gc.get_objects())
    return sorted(t.__name__ for t in found if str(t.__module__).startswith(own))


@pytest.mark.parametrize("name", _RUNS)
def test_nothing_of_a_run_waits_for_the_collector_of_circles(name: str, tmp_path: Path) -> None:
    preset, *overrides = _RUNS[name]
    run(load_scenario(preset, overrides), run_dir=tmp_path / "first", report=False)  # what is compiled is kept
    gc.collect()
    before = left()
    gc.disable()
    try:
        run(load_scenario(preset, overrides), run_dir=tmp_path / "run", report=False)
        assert left() == before
    finally:
        gc.enable()
