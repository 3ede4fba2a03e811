"""Episodes as text."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import EnvError
from ludus.envs.openspiel.games import replay
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import make_env
from ludus.testing.ledger import Actor

SEEDS = np.array([5], np.uint64)

NAUGHTS = """\
tic_tac_toe, seed 5, episode 0
    ...
    ...
    ...
player 0: x(0,0)
    x..
    ...
    ...
player 1: o(1,1)
    x..
    .o.
    ...
player 0: x(0,1)
    xx.
    .o.
    ...
player 1: o(2,2)
    xx.
    .o.
    ..o
player 0: x(0,2)
    xxx
    .o.
    ..o
returns: player 0 1, player 1 -1
"""


def episode(env) -> list[int]:
    """Play environment 0 to the end of its quota of one; its moves."""
    actor, timestep, moves = Actor(env.spec, SEEDS), env.reset(SEEDS, episodes=1), []
    while any(len(due.slot) for due in timestep.due):
        actions = actor.actions(timestep)
        moving = [int(a[0]) if len(a) else -1 for a in actions]
        moves += moving if sum(len(a) for a in actions) > 1 else [max(moving)]
        timestep = env.step(actions)
    return moves


def test_a_board_game_move_by_move():
    assert replay("openspiel/tic_tac_toe", [0, 4, 1, 8, 2], seed=5) == NAUGHTS


def test_moves_only():
    text = replay("openspiel/tic_tac_toe", [0, 4, 1, 8, 2], seed=5, boards=False)
    assert text.splitlines()[1:] == [
        "player 0: x(0,0)",
        "player 1: o(1,1)",
        "player 0: x(0,1)",
        "player 1: o(2,2)",
        "player 0: x(0,2)",
        "    xxx",
        "    .o.",
        "    ..o",
        "returns: player 0 1, player 1 -1",
    ]


def test_moves_at_once():
    lines = replay("openspiel/matrix_rps", [1, 0], seed=0, boards=False).splitlines()
    assert lines[1:3] == ["player 0: Paper", "player 1: Rock"]
    assert lines[-1] == "returns: player 0 1, player 1 -1"


def test_an_episode_that_is_not_over():
    assert replay("openspiel/tic_tac_toe", [4], seed=0).endswith(
        "...\n    .x.\n    ...\nnot over; so far: player 0 0, player 1 0\n"
    )


@pytest.mark.parametrize(
    "name", ["leduc_poker", "goofspiel(num_cards=4)", "negotiation", "repeated_leduc_poker", "pathfinding"]
)
def test_chance_is_that_of_the_environment(name):
    """The text of an environment's own episode, and of its moves under its seed, are one; and so is the end."""
    env = make_env(f"openspiel/{name}", num_envs=1, tree="off")
    moves = episode(env)
    text = replay(f"openspiel/{name}", moves, seed=5)
    assert text == env.transcript(0)
    assert env.render(0).strip().splitlines()[-1].strip() in text
    if name == "leduc_poker":
        assert text.count("chance: ") in (2, 3)


def test_compiled_games_play_the_same_episodes():
    compiled = make_env("openspiel/leduc_poker", num_envs=1, tree="on")
    moves = episode(compiled)
    text = replay("openspiel/leduc_poker", moves, seed=5)
    other = make_env("openspiel/leduc_poker", num_envs=1, tree="off")
    timestep = other.reset(SEEDS, episodes=1)
    for move in moves:
        timestep = other.step(tuple(np.full(len(due.slot), move) for due in timestep.due))
    assert other.transcript(0) == text


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([0, 0], r"player 1 cannot play 0 at move 1; legal: \[1, 2, 3"),
        ([0, 4, 1, 8, 2, 3], "over after 5 of 6 moves"),
    ],
)
def test_moves_that_cannot_be_made(moves, message):
    with pytest.raises(EnvError, match=message):
        replay("openspiel/tic_tac_toe", moves, seed=0)


def test_half_a_joint_move():
    with pytest.raises(EnvError, match="2 players move at once at move 0, and only 1"):
        replay("openspiel/matrix_rps", [1], seed=0)


class TestRender:
    def test_the_present_state(self):
        env = OpenSpielVectorEnv("tic_tac_toe", 2)
        env.reset(np.arange(2, dtype=np.uint64))
        env.step((np.array([4, 0]), np.empty(0, np.int64)))
        assert env.render(0) == "...\n.x.\n..."
        assert env.render(1) == "x..\n...\n..."

    def test_an_idle_environment_shows_its_end(self):
        env = OpenSpielVectorEnv("tic_tac_toe", 1)
        env.reset(SEEDS, episodes=1)
        for t, cell in enumerate((0, 4, 1, 8, 2)):
            env.step(tuple(np.array([cell] if t % 2 == p else [], np.int64) for p in range(2)))
        assert env.render(0) == "xxx\n.o.\n..o"
        assert env.transcript(0) == NAUGHTS

    def test_render_before_reset_or_out_of_range_raises(self):
        env = OpenSpielVectorEnv("tic_tac_toe", 1)
        with pytest.raises(EnvError, match="reset first"):
            env.render(0)
        env.reset(SEEDS)
        with pytest.raises(EnvError, match="from 0 to 0"):
            env.render(1)
