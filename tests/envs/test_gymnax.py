"""`gymnax/…`: the contract, agreement with gymnax itself, ends told apart, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from installed import require

pytest.importorskip("jax")

from jax_games import check_form
from refusals import Refusal, check_refusals

from ludus.contrib.envs.functional.game import split_seeds
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

require("gymnax")

# The packages' own code is not up to date with JAX's types, which JAX says when it compiles it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:scatter inputs"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]

ID = "gymnax/CartPole-v1"


@pytest.mark.slow
def test_as_gymnax_plays_it() -> None:
    """Keys: of episode k fold_in(seed, k), of its beginning that folded with 0, of step t with t from 1. The pole falls, which is
    termination, or the eighth step is over, which is truncation."""
    import gymnax
    import jax

    seeds = keys(2, "gymnax", count=2)
    env = make_env(ID, num_envs=2, max_steps_in_episode=12)
    bare, params = gymnax.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=12)
    step, reset = jax.jit(bare.step_env), jax.jit(bare.reset_env)
    timestep, fold, ends = env.reset(seeds), jax.random.fold_in, []
    key = [fold(row, 0) for row in split_seeds(seeds)]
    begun = [reset(fold(k, 0), params) for k in key]
    seen, states = [list(column) for column in zip(*begun, strict=True)]
    length, number = [0, 0], [0, 0]
    for _ in range(30):
        np.testing.assert_allclose(timestep.due[0].observation, np.stack(seen), rtol=1e-5, atol=1e-6)
        actions = np.array([1, length[1] % 2])  # one falls, one balances for a while
        timestep, over = env.step((actions,)), []
        for e in range(2):
            length[e] += 1
            seen[e], states[e], _, done, _ = step(fold(key[e], length[e]), states[e], actions[e], params)
            if done or (hasattr(bare, "is_truncated") and bare.is_truncated(states[e], params)):
                over.append(e)
                ends.append((length[e], bool(abs(states[e].theta) > params.theta_threshold_radians)))
                assert timestep.finished.terminated.tolist()[len(over) - 1] == ends[-1][1]
                assert timestep.finished.returns[len(over) - 1].tolist() == [length[e]]
                number[e], length[e] = number[e] + 1, 0
                key[e] = fold(split_seeds(seeds)[e], number[e])
                seen[e], states[e] = reset(fold(key[e], 0), params)
        assert timestep.finished.environment.tolist() == over
    assert {how for _, how in ends} == {True, False}
    assert (12, False) in ends


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Breakout", "SpaceInvaders", pytest.param("Freeway", marks=pytest.mark.long)])
def test_limit_of_minatar_truncates(name: str) -> None:
    """With a limit of four steps, in which no game is over."""
    env = make_env(f"gymnax/{name}-MinAtar", num_envs=2, max_steps_in_episode=4)
    timestep, ends = env.reset(keys(3, "gymnax", count=2), episodes=2), []
    for _ in range(8):
        timestep = env.step((np.zeros(len(timestep.due[0].slot), np.int64),))
        ends += [*zip(timestep.finished.length.tolist(), timestep.finished.terminated.tolist(), strict=True)]
    assert ends == [(4, False)] * 4


@pytest.mark.slow
def test_game_that_is_over_in_the_last_permitted_step_is_terminated() -> None:
    """A ball that the paddle does not hit is lost in the same step, limit or not."""
    options: list[dict[str, Any]] = [{}]
    ends: list[tuple[int, bool]] = []
    for extra in (0, 1):
        env = make_env("gymnax/Breakout-MinAtar", num_envs=1, **options[-1])
        timestep = env.reset(keys(4, "gymnax", count=1), episodes=1)
        while not len(timestep.finished.environment):
            timestep = env.step((np.zeros(1, np.int64),))
        ends.append((int(timestep.finished.length[0]), bool(timestep.finished.terminated[0])))
        options.append({"max_steps_in_episode": ends[-1][0] - extra})
    assert ends[0][1]
    assert ends[1] == ends[0]


@pytest.mark.slow
def test_gymnax_calls_the_limit_of_two_games_an_end() -> None:
    """Why Ludus steps them without a limit. If this fails, gymnax has changed, and `GymnaxEnv` may be simpler."""
    import gymnax
    import jax

    for name in ("Asterix", "Breakout"):  # SpaceInvaders is as Breakout
        bare, params = gymnax.make(f"{name}-MinAtar")
        params = params.replace(max_steps_in_episode=1)
        key = jax.random.key(0)
        _, state = jax.jit(bare.reset_env)(key, params)
        _, state, _, done, _ = jax.jit(bare.step_env)(key, state, 0, params)
        if hasattr(bare, "is_truncated"):  # from 1.0 on
            assert (bool(done), bool(bare.is_truncated(state, params))) == (False, True)
        else:
            over = bool(bare.is_terminal(state.replace(time=0), params))
            assert (bool(done), over) == (True, name == "Breakout")


REFUSED: list[Refusal] = [
    ("gymnax/CartPole-v2", {}, UnknownName, "did you mean 'CartPole-v1'"),
    (ID, {"max_steps_in_episodes": 3}, ConfigError, "did you mean 'max_steps_in_episode'"),
    (
        ID,
        {"max_steps_in_episode": "9"},
        ConfigError,
        "max_steps_in_episode='9' was given for gymnax/.*; expected a number",
    ),
    (
        ID,
        {"max_steps_in_episode": 0},
        ConfigError,
        "max_steps_in_episode=0 was given; expected a number of steps from 1",
    ),
    (ID, {"state": True}, ConfigError, "no common state"),
]


def test_gymnax_rejects_invalid_ids_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnax

    def fetch(*_: object, **__: object) -> object:
        raise OSError("Name or service not known")

    check_refusals(partial(make_env, num_envs=1), REFUSED)
    assert len(list_envs("gymnax")) >= 20
    assert "gymnax/MNISTBandit-bsuite" not in list_envs("gymnax")  # which loads its pictures when it is made
    assert make_env(ID, num_envs=1).spec.determinism == "vector"
    assert make_env("gymnax/Catch-bsuite", num_envs=1).spec.determinism == "environment"
    monkeypatch.setattr(gymnax, "make", fetch)
    with pytest.raises(EnvError, match="loads its pictures from the network when it is made, which failed"):
        make_env("gymnax/MNISTBandit-bsuite", num_envs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "id", ["Breakout-MinAtar", pytest.param("Catch-bsuite", marks=pytest.mark.long), "Pendulum-v1"]
)
def test_gymnax_environments_satisfy_vector_env_contract(id: str) -> None:
    check_env(lambda n: make_env(f"gymnax/{id}", num_envs=n), num_envs=2, steps=40)


@pytest.mark.long
def test_every_environment_has_the_form_that_it_announces(subtests: pytest.Subtests) -> None:
    """But one that fails in gymnax 0.0.9 itself."""
    for id in sorted(set(list_envs("gymnax")) - {"gymnax/SimpleBandit-bsuite"}):
        with subtests.test(id):
            check_form(make_env(id, num_envs=2))
