"""What people do in Python, beside commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus


@pytest.mark.parametrize("key", ["algorithm", "meta_solver"])
def test_a_class_in_place_of_an_object(key: str) -> None:
    with pytest.raises(ludus.LudusError, match=f"{key}: PPO is a class; give an object of it, such as PPO()."):
        ludus.PSRO(env="openspiel/kuhn_poker", **{key: ludus.PPO})


def test_a_result_is_printed_in_one_line(tmp_path: Path) -> None:
    scenario = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=1)
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    assert repr(result) == (
        f"<Result of '{tmp_path / 'run'}': 1 generations, NashConv {result.nash_conv[-1]:.4g}; the schedule is complete>"
    )
