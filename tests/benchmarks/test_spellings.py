"""`benchmarks.spellings`: its rows, and what is told of one."""

from __future__ import annotations

from benchmarks.spellings import BENCHMARK
from benchmarks.spellings_run import TASKS, Task, differing, score, share


def test_every_row_has_its_settings_and_two_trainings() -> None:
    assert len(TASKS) == 12
    assert len(BENCHMARK.contestants) == len(BENCHMARK.bars) == 3 * 12
    assert {"ppo"} | {"dqn", "sac"} == {algorithm for task in TASKS.values() for algorithm in task.bars}
    assert sum(bool(c.quick_seeds) for c in BENCHMARK.contestants) == 12 + 2


def test_a_bar_is_four_fifths_of_the_way_from_random_play() -> None:
    assert share(-500, -100) == -180
    assert share(0.5, 1.0) == 0.9


def test_spellings_are_counted() -> None:
    assert differing(TASKS["kuhn"]) == {"spellings": 16.0, "differ": 0.0}


def test_one_training_has_a_score() -> None:
    """Of one player, and of a game: the second player's, against random play."""
    few = ("response.decisions=64", "algorithm.batch=64")
    assert 8 <= score(TASKS["CartPole"], "ppo", 0, changes=few)["score"] <= 500
    second = Task(TASKS["kuhn"].env, {}, player=1)
    assert -2 <= score(second, "ppo", 0, changes=("response.episodes=64", "algorithm.batch=64"))["score"] <= 2
