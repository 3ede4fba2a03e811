"""The bare loops that `benchmarks.rollout` compares with play whole episodes by the rules."""

import numpy as np
import pytest

from benchmarks.rollout_floor import GAMES, BareLoop
from benchmarks.rollout_setups import SETUPS, Player


def _episodes(kind: str, *, num_envs: int, decisions: int) -> tuple[int, np.ndarray]:
    policies = Player(SETUPS[kind].make(), decisions=decisions).policies
    loop = BareLoop(GAMES[kind](num_envs), policies, decisions)
    return loop.play(), loop.episodes


def test_a_pole_that_stands_earns_one_in_each_step() -> None:
    made, episodes = _episodes("cartpole", num_envs=4, decisions=400)
    assert 400 <= made < 404
    assert len(episodes) > 4
    np.testing.assert_array_equal(episodes[:, 0], episodes[:, 1])


@pytest.mark.parametrize("kind", ["connect_four", "pettingzoo"])
def test_games_of_two_end_by_the_rules(kind: str) -> None:
    made, episodes = _episodes(kind, num_envs=4, decisions=200)
    assert made > 380  # of both players
    assert len(episodes) > 4
    np.testing.assert_array_equal(episodes[:, 0] + episodes[:, 1], 0)
    assert set(np.unique(episodes[:, 0])) <= {-1.0, 0.0, 1.0}
    assert ((episodes[:, 2] >= 7) & (episodes[:, 2] <= 42)).all()


@pytest.mark.parametrize("kind", sorted(GAMES))
def test_an_action_that_there_is_not_is_refused(kind: str) -> None:
    game = GAMES[kind](2)
    actions = [np.full(due.n, 7, np.int64) for due in game.due]
    with pytest.raises(ValueError, match="illegal action"):
        game.step(actions)
