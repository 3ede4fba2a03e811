"""What packages compiled by JAX do otherwise than expected, as the pages of `pgx`, `jaxmarl` and `jumanji` say: a test that fails after an
update of a package names a row of a page, or a warning, that is to be changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import require

pytest.importorskip("jax")

import jax

from ludus.envs.registry import make_env

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:scatter inputs"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]
KEY = np.zeros(2, np.uint32)


def game_of(id: str, **options: Any) -> Any:
    """Return the package's environment, which Ludus's adapter steps."""
    env: Any = make_env(id, num_envs=1, **options)
    inner = env._program.env
    return inner._game if id.startswith("pgx/") else inner._env


def test_the_start_of_chess_does_not_count_for_repetition() -> None:
    """Knights of both sides go out and back: the first position is there for the third time after 8 moves."""
    require("pgx")
    game = game_of("pgx/chess")
    step, state, plies, out, back = jax.jit(game.step), jax.jit(game.init)(KEY), 0, 3572, 3137
    while not state.terminated:
        state = step(state, (out, back)[plies // 2 % 2])
        plies += 1
    assert plies == 9
    assert state.rewards.tolist() == [0, 0]


def test_a_repeated_position_of_go_is_legal_and_loses() -> None:
    require("pgx")
    game = game_of("pgx/go_9x9")
    step, state = jax.jit(game.step), jax.jit(game.init)(KEY)
    for point in ["b1", "a2", "c2", "b2", "d1", "pass", "a1", "c1", "b1"]:
        assert not state.terminated
        mover = int(state.current_player)
        action = 81 if point == "pass" else "abcdefghj".index(point[0]) + 9 * (int(point[1]) - 1)
        assert state.legal_action_mask[action]
        state = step(state, action)
    assert state.terminated
    assert state.rewards[mover] == -1


def test_self_draws_of_sparrow_mahjong_win_for_the_last_seat_only() -> None:
    require("pgx")
    game = game_of("pgx/sparrow_mahjong")

    def play(key: Any) -> Any:
        def move(carry: Any, key: Any) -> Any:
            logits = jax.numpy.where(carry.legal_action_mask, 0.0, -np.inf)
            after = jax.vmap(game.step)(carry, jax.random.categorical(key, logits))
            won = after.terminated & ~carry.terminated
            return after, (won, after.rewards, carry.current_player)

        first, rest = jax.random.split(key)
        state = jax.vmap(game.init)(jax.random.split(first, 1024))
        return jax.lax.scan(move, state, jax.random.split(rest, 40))[1]

    won, rewards, mover = map(np.asarray, jax.jit(play)(KEY))
    winners = []
    for moves, environment in np.argwhere(won):
        paid = rewards[moves, environment]
        if moves >= 4 and (paid > 0).sum() == 1 and (paid < 0).sum() == 2:  # all others pay for a self-draw
            order = list(dict.fromkeys(mover[: moves + 1, environment].tolist()))
            winners.append(order.index(int(paid.argmax())))
    assert len(winners) > 10
    assert set(winners) == {2}


@pytest.mark.parametrize(
    ("id", "left", "moved"),
    [
        ("overcooked", 0, {2: (1, 0), 3: (0, 0)}),  # right from the left cell, left is a wall
        ("overcooked_v2", 1, {0: (1, 0), 2: (0, 0)}),
    ],
)
def test_action_orders_and_seats_of_overcooked(id: str, left: int, moved: dict[int, tuple[int, int]]) -> None:
    require("jaxmarl")
    env = game_of(f"jaxmarl/{id}", layout="cramped_room")
    step, (_, state) = jax.jit(env.step_env), jax.jit(env.reset)(KEY)

    def places(state: Any) -> list[tuple[int, int]]:
        if hasattr(state, "agent_pos"):
            return [tuple(place) for place in state.agent_pos.tolist()]
        return list(zip(state.agents.pos.x.tolist(), state.agents.pos.y.tolist(), strict=True))

    start = places(state)
    assert start[left] == (1, 1)
    assert start[1 - left] == (3, 1)
    stay = 4
    for action, way in moved.items():
        actions = {f"agent_{k}": np.int32(action if k == left else stay) for k in range(2)}
        (x, y), (to_x, to_y) = start[left], places(step(KEY, state, actions)[1])[left]
        assert (to_x - x, to_y - y) == way


def test_the_border_kills_in_smax() -> None:
    """The enemies walk out, and the allies, who stand still, are paid as for a victory; with the walls switched off they are not."""
    require("jaxmarl")
    for walls in (True, False):
        env = game_of("jaxmarl/SMAX", scenario="3m", walls_cause_death=walls)
        step, (_, state) = jax.jit(env.step_env), jax.jit(env.reset)(KEY)
        stop, right, returns = 4, 1, 0.0
        for _ in range(8):
            actions = {agent: np.int32(stop if agent.startswith("ally") else right) for agent in env.agents}
            _, state, paid, done, _ = step(KEY, state, actions)
            returns += float(paid["ally_0"])
            if done["__all__"]:
                break
        assert bool(done["__all__"]) == walls
        assert returns == pytest.approx(2.0 if walls else 0.0)


def test_collisions_end_episodes_of_jumanjis_warehouse() -> None:
    require("jumanji")
    env = make_env("jumanji/RobotWarehouse-v0", num_envs=16)
    timestep, rng = env.reset(np.arange(16, dtype=np.uint64), episodes=1), np.random.default_rng(0)
    collided = 0
    while any(len(due.slot) for due in timestep.due):
        masks = [due.mask for due in timestep.due]
        timestep = env.step(tuple((mask * rng.random(mask.shape)).argmax(axis=1) for mask in masks))
        ended = timestep.finished
        assert (ended.terminated == (ended.length < 500)).all()
        collided += int(ended.terminated.sum())
    assert collided > 8
