"""Where time goes, told for each generation and, apart from it, for each stretch between barriers."""

from __future__ import annotations

import pytest

from ludus.core.recorders import Timings


def test_a_stretch_is_told_once_and_takes_nothing_from_a_generation() -> None:
    timings = Timings()
    timings.rollout(2.0, {"environment": 1.5}, {"env_steps": 30})
    assert timings.seconds_since_last() == {"seconds/environment": 1.5, "seconds/rollout": 0.5, "env_steps": 30.0}
    assert timings.seconds_since_last() == {}
    timings.rollout(1.0, {"environment": 1.0}, {"env_steps": 10})
    assert timings.pop_metrics() == {"seconds/environment": 2.5, "seconds/rollout": 0.5, "rollout/env_steps": 40.0}
    assert timings.seconds_since_last() == {"seconds/environment": 1.0, "seconds/rollout": 0.0, "env_steps": 10.0}


def test_a_restored_state_is_no_part_of_a_stretch() -> None:
    timings, before = Timings(), Timings()
    with before.part("learning"):
        pass
    timings.load_state_dict(before.state_dict())
    assert timings.seconds_since_last() == {}
    assert timings.pop_metrics()["seconds/learning"] == pytest.approx(before.pop_metrics()["seconds/learning"])
