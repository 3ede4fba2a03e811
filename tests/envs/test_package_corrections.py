"""What packages get wrong: what Ludus corrects of it, and what it passes through and its pages say. A test that fails after an update of a
package names a row of a page that is to be changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import require

from ludus.core.errors import ConfigError
from ludus.envs.registry import make_env, package_faults

require("pettingzoo")

SEED = np.arange(1, dtype=np.uint64)


def planes(timestep: Any, player: int) -> list[list[int]]:
    (board,) = timestep.due[player].observation
    return [np.flatnonzero(board[..., k]).tolist() for k in range(6)]


@pytest.mark.parametrize("own_first", [None, True])
def test_go_shows_own_stones_first_if_asked(own_first: bool | None) -> None:
    """After 0, 1 and 24 on 5 × 5 White is due: by itself the package shows Black's stones in the planes of White's."""
    options = {} if own_first is None else {"own_stones_first": own_first}
    env = make_env("pettingzoo/go_v5", num_envs=1, board_size=5, **options)
    env.reset(SEED)
    for ply, action in enumerate((0, 1, 24)):
        timestep = env.step(tuple(np.array([action] if player == ply % 2 else [], int) for player in range(2)))
    white = planes(timestep, 1)
    assert white == ([[1], [0, 24], [1], [0], [], [0]] if own_first else [[0, 24], [1], [1], [0], [0], []])


@pytest.mark.parametrize(("id", "value"), [("chess_v6", True), ("go_v5", "yes")])
def test_own_stones_first_is_an_option_of_go(id: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="own_stones_first"):
        make_env(f"pettingzoo/{id}", num_envs=1, own_stones_first=value)


def test_chess_ends_where_a_draw_can_be_claimed() -> None:
    """Knights go out and back: the third repetition would come with ply 8, and the package ends the game after ply 7."""
    out, back = 3563, 3126  # of both, since each side sees the board from its own
    env = make_env("pettingzoo/chess_v6", num_envs=1)
    timestep = env.reset(SEED)
    for ply in range(7):
        assert not len(timestep.finished.environment)
        action = (out, back)[ply // 2 % 2]
        timestep = env.step(tuple(np.array([action] if player == ply % 2 else [], int) for player in range(2)))
    assert timestep.finished.length.tolist() == [7]
    assert timestep.finished.returns.tolist() == [[0.0, 0.0]]


@pytest.mark.slow
def test_hanabi_shows_the_last_position() -> None:
    """All lives are lost, which costs both players the points so far. By itself the package shows the position before the last move."""
    require("shimmy")
    env: Any = make_env("pettingzoo/hanabi_v5", num_envs=1)
    timestep, rng = env.reset(SEED, episodes=1), np.random.default_rng(0)
    while any(len(due.slot) for due in timestep.due):
        plays = [due.mask * (np.arange(20) // 5 == 1) for due in timestep.due]
        timestep = env.step(tuple((each * rng.random(each.shape)).argmax(axis=1) for each in plays))
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.finished.returns.tolist() == [[0.0, 0.0]]
    position = env.game(0).unwrapped.hanabi_env.unwrapped
    for player in range(2):
        assert timestep.ended[player].observation[0].tolist() == position.game_state.observation_tensor(player)
        assert (position.observations[f"player_{player}"] != timestep.ended[player].observation[0]).any(), "mended"


def test_a_run_of_atari_is_warned_that_nothing_is_random() -> None:
    (text,) = package_faults("pettingzoo/pong_v3", {})
    assert "noop_max=30" in text
    assert package_faults("pettingzoo/pong_v3", {"noop_max": 30}) == []
    assert package_faults("pettingzoo/chess_v6", {}) == []


# ---------------------------------------------------------------------------------------------- what is passed through


def test_white_is_player_1_in_openspiel() -> None:
    for name in ("chess", "dark_chess", "kriegspiel"):
        env = make_env(f"openspiel/{name}", num_envs=1, tree="off")
        assert [len(due.slot) for due in env.reset(SEED).due] == [0, 1]


def test_the_last_card_of_goofspiel_plays_itself() -> None:
    env = make_env("openspiel/goofspiel", num_envs=1)
    timestep, decisions = env.reset(SEED, episodes=1), 0
    while len(timestep.due[0].slot):
        decisions += 1
        timestep = env.step(tuple(due.mask.argmax(axis=1) for due in timestep.due if due.mask is not None))
    assert decisions == 12


def test_a_natural_beats_three_cards_in_blackjack() -> None:
    import gymnasium

    assert gymnasium.spec("Blackjack-v1").kwargs == {"sab": True, "natural": False}


def test_foragers_of_short_sight_do_not_see_where_they_are() -> None:
    require("lbforaging")
    shown, hidden = [], []
    for prefix, positions in (("", shown), ("2s-", hidden)):
        env = make_env(f"lbf/Foraging-{prefix}10x10-3p-3f-v3", num_envs=16)
        timestep = env.reset(np.arange(16, dtype=np.uint64))
        positions.extend(tuple(row[9:11].tolist()) for due in timestep.due for row in due.observation)
    assert len(set(shown)) > 20
    assert set(hidden) <= {(a, b) for a in (0.0, 1.0, 2.0) for b in (0.0, 1.0, 2.0)}
    assert hidden.count((2.0, 2.0)) > len(hidden) / 2


@pytest.mark.slow
def test_simple_spread_of_vmas_counts_each_distance_three_times() -> None:
    """Three agents stand 0.5 from their landmarks, so far apart that none touches another; then two of them touch."""
    require("vmas")
    import torch

    env: Any = make_env("vmas/simple_spread", num_envs=1, continuous_actions=False)
    assert env.spec.agents[0].action.n == 9
    batch = env._batch.vmas
    batch.reset(seed=0)
    for k, (agent, landmark) in enumerate(zip(batch.world.agents, batch.world.landmarks, strict=True)):
        agent.set_pos(torch.tensor([[0.8 * k - 0.8, 0.5]]), batch_index=None)
        landmark.set_pos(torch.tensor([[0.8 * k - 0.8, 0.0]]), batch_index=None)
    apart = [float(batch.scenario.reward(agent)) for agent in batch.world.agents]
    assert apart == pytest.approx([-4.5] * 3)
    agent = batch.world.agents[1]
    agent.set_pos(torch.tensor([[-0.7, 0.5]]), batch_index=None)
    touching = [float(batch.scenario.reward(agent)) for agent in batch.world.agents]
    further = 3 * (np.hypot(0.7, 0.5) - 0.5)
    assert touching == pytest.approx([-4.5 - further - 2] * 3)
