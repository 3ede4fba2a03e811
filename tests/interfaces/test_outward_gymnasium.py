"""Environments as Gymnasium's: its checks and Stable-Baselines3's, the vector and single environments play the same, opponents of all
kinds, masks, teams, truncation, seeds."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import ludus
from ludus.core.errors import ConfigError, EnvError, LudusError, RunWarning
from tests.interfaces.outward_games import Leaving

KUHN, CONNECT = "openspiel/kuhn_poker", "openspiel/connect_four"
COINS = "ludus.testing.fakes:coins"
BOTS = "tests.interfaces.outward_games"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kuhn") / "run"
    ludus.run(ludus.PSRO(env=KUHN, algorithm="exact", generations=3), run_dir=folder, report=False)
    return folder


def legal_action(env: Any, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(env.action_masks())))


def episode(env: Any, rng: np.random.Generator, **reset: Any) -> tuple[list[float], dict[str, Any]]:
    """Rewards of an episode of legal actions, and its last info."""
    env.reset(**reset)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(legal_action(env, rng))
        rewards.append(reward)
        over = terminated or truncated
    return rewards, info


@pytest.mark.filterwarnings("ignore")  # of bounds that are infinite, of render modes, of illegal actions
@pytest.mark.parametrize(
    ("env", "options"),
    [(KUHN, {}), ("openspiel/kuhn_poker(players=3)", {"player": 2}), (CONNECT, {}), (COINS, {}), (Leaving, {})],
)
def test_gymnasiums_and_stable_baselines_checks_pass(env: Any, options: dict[str, Any]) -> None:
    check_env(ludus.gymnasium_env(env, **options), skip_render_check=True)
    sb3_check_env(ludus.gymnasium_env(env, **options), skip_render_check=True)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize(
    "env",
    [KUHN, CONNECT, COINS, pytest.param("pgx/tic_tac_toe", marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_a_vector_plays_the_episodes_of_single_environments(env: str, mode: str) -> None:
    options: dict[str, Any] = {"player": 1}
    vector = ludus.gymnasium_vector_env(env, num_envs=3, autoreset_mode=mode, **options)
    assert vector.metadata["autoreset_mode"] == AutoresetMode[mode.upper()]
    alone = [ludus.gymnasium_env(env, **options) for _ in range(3)]
    rng = np.random.default_rng(0)
    observations, _ = vector.reset(seed=10)
    for e, one in enumerate(alone):
        assert np.array_equal(one.reset(seed=10 + e)[0], observations[e])
    over = [False] * 3
    ended = 0
    for _ in range(25):
        masks = vector.action_masks()
        actions = (rng.random(masks.shape) * masks).argmax(axis=1)
        observations, rewards, terminations, truncations, infos = vector.step(actions)
        for e, one in enumerate(alone):
            if over[e] and mode == "next_step":
                observation, reward, over[e] = one.reset()[0], 0.0, False
            else:
                observation, step_reward, terminated, truncated, info = one.step(actions[e])
                reward, over[e] = step_reward, terminated or truncated
                assert (terminated, truncated) == (terminations[e], truncations[e])
                if over[e]:
                    ended += 1
                    final = infos if mode == "next_step" else infos["final_info"]
                    assert final["returns"][e].tolist() == info["returns"].tolist()
                    if mode == "same_step":
                        assert np.array_equal(infos["final_obs"][e], observation)
                        observation = one.reset()[0]
            assert np.array_equal(observation, observations[e])
            assert rewards[e] == pytest.approx(reward)
    assert ended > 5


def test_several_players_play_the_environments_in_turn() -> None:
    vector = ludus.gymnasium_vector_env(KUHN, num_envs=5, player=[1, 0])
    alone = [ludus.gymnasium_env(KUHN, player=1 - e % 2) for e in range(5)]
    observations, _ = vector.reset(seed=7)
    assert [list(opponents) for opponents in vector.opponents()] == [[0], [1], [0], [1], [0]]
    for e, one in enumerate(alone):
        assert np.array_equal(one.reset(seed=7 + e)[0], observations[e])
    observations, rewards, terminations, _, _ = vector.step(np.ones(5, np.int64))
    for e, one in enumerate(alone):
        observation, reward, terminated, _, _ = one.step(1)
        assert np.array_equal(observation, observations[e])
        assert (reward, terminated) == (rewards[e], terminations[e])
    with pytest.raises(ConfigError, match="each needs one"):
        ludus.gymnasium_vector_env(KUHN, num_envs=1, player=[0, 1])


def test_without_autoreset_the_caller_resets_what_is_over() -> None:
    vector = ludus.gymnasium_vector_env(KUHN, num_envs=4, autoreset_mode="disabled", seed=1)
    vector.reset()
    over = np.zeros(4, np.bool_)
    while not over.any():
        _, _, terminations, truncations, _ = vector.step(np.zeros(4, np.int64))
        over = terminations | truncations
    with pytest.raises(EnvError, match="is over; reset it"):
        vector.step(np.zeros(4, np.int64))
    before = vector.games.observation.copy()
    observations, _ = vector.reset(options={"reset_mask": over})
    assert np.array_equal(observations[~over], before[~over])
    vector.step(np.zeros(4, np.int64))
    with pytest.raises(EnvError, match="reset_mask"):
        vector.reset(options={"reset_mask": np.zeros(4, np.bool_)})


def test_the_same_seed_repeats_the_same_episodes(run: Path) -> None:
    def play(env: Any) -> list[Any]:
        rng = np.random.default_rng(3)
        first = episode(env, rng, seed=5)
        return [(rewards, info["opponents"]) for rewards, info in [first, *(episode(env, rng) for _ in range(20))]]

    env = ludus.gymnasium_env(opponents=[f"{run}@meta", "random"])
    once = play(env)
    assert play(env) == once
    assert play(ludus.gymnasium_env(opponents=[f"{run}@meta", "random"])) == once
    assert len({name for _, opponents in once for name in opponents.values()}) > 1


def test_the_opponents_are_drawn_by_weight_and_by_the_meta_strategy(run: Path) -> None:
    opponents: list[Any] = [{"policy": f"{run}@meta", "weight": 3}, "random"]
    vector = ludus.gymnasium_vector_env(opponents=opponents, num_envs=3000, seed=0)
    vector.reset()
    names = Counter(drawn[1] for drawn in vector.opponents())
    policy = ludus.load_policy(f"{run}@meta", player=1)
    assert names["random"] / 3000 == pytest.approx(0.25, abs=0.04)
    for sampled in policy.sampled:
        share = names[f"{run}@meta {sampled.name}"] / 3000
        assert share == pytest.approx(0.75 * sampled.prob, abs=0.04)


def test_a_run_is_played_as_matches_play_it(run: Path) -> None:
    """The mean return of one policy against another is that of their matches."""
    report = ludus.evaluate_run(run, policies=["@0/0-2", "@1/1-1"], episodes=10_000)
    payoff = float(report.matches[0].mean[0])
    policy = ludus.load_policy(f"{run}@0/0-2")
    vector = ludus.gymnasium_vector_env(opponents=f"{run}@1/1-1", num_envs=2000, autoreset_mode="same_step", seed=0)
    observations, _ = vector.reset()
    returns: list[float] = []
    for _ in range(6):
        actions, _ = policy.predict(observations)
        observations, _, _, _, infos = vector.step(actions)
        final = infos.get("final_info", {"returns": np.zeros((0, 2)), "_returns": np.zeros(0, np.bool_)})
        returns += final["returns"][final["_returns"], 0].tolist()
    assert np.mean(returns) == pytest.approx(payoff, abs=8 * np.std(returns) / np.sqrt(len(returns)))


def test_bots_that_search_play_by_the_state() -> None:
    """As the second player of three columns, one of two in a row: a search of a few simulations takes the win."""
    small = "openspiel/connect_four(rows=2,columns=3,x_in_row=2)"
    env = ludus.gymnasium_env(small, opponents="bot:mcts-20", seed=0, tree="off")
    rng = np.random.default_rng(0)
    for _ in range(5):
        rewards, info = episode(env, rng)
        assert sum(rewards) == pytest.approx(info["returns"][0])
    assert info["opponents"] == {1: "bot:mcts-20"}
    env.reset()
    env.step(0)
    assert env.step(2)[1:3] == (-1.0, True)


@pytest.mark.slow  # a bot of one's own is looked at in a process
def test_bots_of_ones_own_play_by_observations_and_by_states() -> None:
    small = "openspiel/connect_four(rows=2,columns=3,x_in_row=3)"
    for name in ("Second", "Follows"):
        env = ludus.gymnasium_env(small, opponents=f"{BOTS}:{name}", seed=0, tree="off", render_mode="ansi")
        env.reset()
        env.step(0)
        assert env.render() == {"Second": "...\nx.o\n", "Follows": "o..\nx..\n"}[name]


def test_illegal_actions_are_replaced_lost_or_errors() -> None:
    id = "openspiel/connect_four(rows=1,columns=5,x_in_row=3)"
    for choice in ("random", "lose", "raise"):
        env = ludus.gymnasium_env(id, illegal_actions=choice, seed=0, tree="off")
        env.reset()
        env.step(0)
        assert not env.action_masks()[0]
        if choice == "raise":
            with pytest.raises(EnvError, match="illegal action"):
                env.step(0)
            continue
        with pytest.warns(RunWarning, match="illegal action"):
            _, reward, terminated, _, info = env.step(0)
        assert info["illegal_action"]
        if choice == "lose":
            assert (reward, terminated) == (-1.0, True)


def test_a_team_is_played_together_and_is_truncated() -> None:
    """Blue's agents sum to its return; red is paid after blue_0 has left, and truncated at last."""
    blue = ludus.gymnasium_env(Leaving, teams="prefix")
    assert blue.action_space == MultiDiscrete([3, 3])
    assert isinstance(blue.observation_space, Box)
    assert blue.observation_space.shape == (2, 2)
    observation, _ = blue.reset(seed=0)
    assert observation.tolist() == [[0, 0], [1, 0]]
    rewards, flags = [], []
    for _ in range(4):
        observation, reward, terminated, truncated, info = blue.step(np.array([2, 1]))
        rewards.append(reward)
        flags.append((terminated, truncated))
    assert rewards == [3, 3, 1, 1]
    assert flags == [(False, False)] * 3 + [(False, True)]
    assert info["returns"][0] == 8
    assert observation.tolist() == [[0, 0], [1, 4]]  # who has left is zeros
    red = ludus.gymnasium_env(Leaving, player="red_0", teams="prefix")
    red.reset(seed=0)
    assert [red.step(0)[1] for _ in range(4)] == [0, 10, 0, 0]


def test_an_agent_that_leaves_early_waits_for_the_return_of_its_game() -> None:
    """blue_0 alone: its episode ends with the game, as a termination, though the game is truncated."""
    env = ludus.gymnasium_env(Leaving, player="blue_0")
    env.reset(seed=0)
    assert env.step(1)[1:4] == (1.0, False, False)
    _, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (2.0, True, False)
    assert info["length"] == 4


def test_copies_and_pickles_are_new_environments() -> None:
    env = ludus.gymnasium_env(KUHN, player=1, seed=4)
    first = [env.reset()[0].tolist() for _ in range(5)]
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert [other.reset()[0].tolist() for _ in range(5)] == first


def test_openspiels_games_show_themselves_to_their_end() -> None:
    env = ludus.gymnasium_env(KUHN, render_mode="ansi", seed=0)
    env.reset()
    before = env.render()
    env.step(1)
    assert env.render()[: len(before)] == before
    assert env.render()[len(before) :] in (" bb", " bp")
    with pytest.raises(ConfigError, match="render_mode"):
        ludus.gymnasium_env(KUHN, render_mode="rgb_array")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opponents": {0: "random"}}, "yours"),
        ({"opponents": {}}, "no policy for player 1"),
        ({"opponents": [{"policy": "random", "weight": -1}]}, "weight"),
        ({"opponents": "rondom"}, "no opponent"),
        ({"opponents": []}, "expected a name"),
        ({"player": 2}, "player"),
        ({"illegal_actions": "skip"}, "illegal_actions"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LudusError, match=message):
        ludus.gymnasium_env(KUHN, **arguments)


def test_wrong_actions_and_an_unknown_environment_are_errors() -> None:
    env = ludus.gymnasium_env(KUHN)
    env.reset()
    with pytest.raises(EnvError, match="expected"):
        env.step([0, 1])
    with pytest.raises(ConfigError, match="no environment"):
        ludus.gymnasium_env()
    vector = ludus.gymnasium_vector_env(KUHN, num_envs=2)
    vector.reset()
    with pytest.raises(EnvError, match="3 actions"):
        vector.step(np.zeros(3, np.int64))
    with pytest.raises(ConfigError, match="autoreset_mode"):
        ludus.gymnasium_vector_env(KUHN, num_envs=2, autoreset_mode="never")


def test_stable_baselines_vectors_have_monitors_infos_and_masks() -> None:
    vector: Any = ludus.sb3_vec_env(KUHN, num_envs=8, seed=0)
    assert vector.has_attr("action_masks")
    observations = vector.reset()
    assert observations.shape == (8, 11)
    assert np.stack(vector.env_method("action_masks")).shape == (8, 2)
    total, ended = np.zeros(8), 0
    for _ in range(10):
        observations, rewards, dones, infos = vector.step(np.ones(8, np.int64))
        total += rewards
        for e in np.flatnonzero(dones).tolist():
            assert infos[e]["episode"]["r"] == pytest.approx(total[e])
            assert infos[e]["terminal_observation"].shape == (11,)
            assert not infos[e]["TimeLimit.truncated"]
            total[e], ended = 0, ended + 1
    assert ended > 8
    vector.seed(3)
    again = vector.reset()
    vector.seed(3)
    assert np.array_equal(vector.reset(), again)
    with pytest.raises(ConfigError, match="autoreset_mode"):
        ludus.sb3_vec_env(KUHN, num_envs=2, autoreset_mode="next_step")


@pytest.mark.filterwarnings("ignore")  # of bounds and of rendering
def test_gymnasium_makes_them_by_an_id() -> None:
    name = "ludus.apps.interfaces.registration:ludus/Game-v0"
    env = gymnasium.make(name, env=KUHN, player=1, render_mode="ansi")
    assert env.reset(seed=0)[0].shape == (11,)
    assert env.get_wrapper_attr("action_masks")().tolist() == [True, True]
    check_env(env.unwrapped)
    envs = gymnasium.make_vec(name, num_envs=3, vectorization_mode="vector_entry_point", env=KUHN)
    assert envs.reset(seed=0)[0].shape == (3, 11)
