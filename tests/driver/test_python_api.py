"""What `import ludus` offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.policies.base import Policy


def test_names_are_sorted_and_resolve() -> None:
    assert ludus.__all__ == sorted(ludus.__all__)
    assert dir(ludus) == ludus.__all__
    for name in ludus.__all__:
        assert getattr(ludus, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Lambda'"):
        _ = ludus.Lambda


def test_import_is_light() -> None:
    code = "import sys, ludus; assert 'torch' not in sys.modules and 'pyspiel' not in sys.modules and 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_run_from_python(tmp_path: Path) -> None:
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker", algorithm=ludus.ExactBestResponse(), meta_solver="nash", generations=5
    )
    result = ludus.run(scenario, run_dir=tmp_path)
    assert isinstance(result, ludus.Result)
    assert result.run_dir == tmp_path
    assert result.stopped_by == "the schedule is complete"
    assert [[r.ref.policy for r in members] for members in result.populations] == [
        [f"{p}-{g}" for g in range(6)] for p in (0, 1)
    ]
    assert result.payoffs.mean.shape == (2, 6, 6)
    assert result.payoffs.exact.all()
    np.testing.assert_allclose(result.payoffs.mean[0], -result.payoffs.mean[1])
    assert [m.shape for m in result.meta_strategies] == [(6,), (6,)]
    np.testing.assert_allclose([m.sum() for m in result.meta_strategies], 1.0)
    assert len(result.nash_conv) == 6
    assert result.nash_conv[-1] < result.nash_conv[0]
    assert result.report == tmp_path / "report.html"
    assert result.report.exists()
    policy = result.policy(0)
    assert isinstance(policy, Policy)
    assert policy.spec == result.populations[0][-1].spec

    # the same again from what is on disk
    again = ludus.resume(tmp_path)
    assert again.nash_conv == result.nash_conv
    np.testing.assert_array_equal(again.payoffs.mean, result.payoffs.mean)
    report = ludus.evaluate_run(tmp_path, episodes=50)
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(result.nash_conv[-1], abs=1e-12)


def test_errors_are_one_family(tmp_path: Path) -> None:
    with pytest.raises(ludus.LudusError):
        ludus.PSRO(env="openspiel/kuhn_poker", generation=5)
    with pytest.raises(ludus.LudusError):
        ludus.run(ludus.PSRO(env="openspiel/khun_poker"), run_dir=tmp_path / "none")
    with pytest.raises(ludus.LudusError):
        ludus.resume(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


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
