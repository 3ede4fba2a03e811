"""`kaggle/…` against a module that speaks kaggle-environments' interface: the contract, encodings, statuses, and what is refused."""

from __future__ import annotations

import copy
import json
import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import kaggle_games
import numpy as np
import pytest
from gymnasium import spaces
from refusals import Refusal, check_refusals

from ludus.contrib.algorithms.bc.demonstrations import demonstrations
from ludus.contrib.envs.kaggle_encoders import STATE, Encoder, OpenSpiel
from ludus.contrib.envs.kaggle_replays import read_replays
from ludus.contrib.envs.words import Words
from ludus.core.errors import ConfigError, DataError, EnvError, UnknownName
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env


class MapLength(Encoder):
    """An encoder of one's own: the length of the map; action 1 is no move of the game, action 2 is None."""

    forfeit = -3.0

    def __init__(self, configuration: Any, players: int, player: int) -> None:
        super().__init__(configuration, players, player)
        self.observation = spaces.Box(0, np.inf, (1,), np.float32)
        self.action = spaces.Discrete(3)

    def observe(self, observation: Any) -> Any:
        assert "serializedGameAndState" not in observation
        return np.array([len(observation["map"])], np.float32)

    def move(self, action: Any) -> Any:
        return [{"go": np.int64(1)}, "stay", None][action]


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    kaggle_games.install(monkeypatch)


def begun(name: str, *, num_envs: int = 1, seed: int = 5, **options: Any) -> tuple[VectorEnv, Any]:
    env = make_env(f"kaggle/{name}", num_envs=num_envs, **options)
    return env, env.reset(np.arange(seed, seed + num_envs, dtype=np.uint64))


def play(env: VectorEnv, timestep: Any, moves: dict[int, int]) -> Any:
    """Step one environment with the action of each player who is due."""
    return env.step(
        tuple(np.array([moves.get(p, 0)][: len(timestep.due[p].slot)], np.int64) for p in range(env.spec.num_players))
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("connectx", {}),
        ("rps", {"episodeSteps": 6}),
        ("hungry_geese", {}),
        ("hungry_geese", {"players": 3, "returns": "outcome"}),
        ("open_spiel_tic_tac_toe", {}),
    ],
)
def test_kaggle_satisfies_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(f"kaggle/{name}", num_envs=n, **options), num_envs=3, steps=30)


def test_connectx_shows_what_openspiel_shows() -> None:
    env, timestep = begun("connectx", rows=6, columns=7, inarow=4)
    twin = make_env("openspiel/connect_four", num_envs=1, tree="off")
    other = twin.reset(np.zeros(1, np.uint64))
    for column in (3, 3, 4, 0, 6):
        for p in range(2):
            np.testing.assert_array_equal(timestep.due[p].observation, other.due[p].observation)
            if len(timestep.due[p].slot):
                np.testing.assert_array_equal(timestep.due[p].mask, other.due[p].mask)
        timestep, other = (play(e, t, {0: column, 1: column}) for e, t in ((env, timestep), (twin, other)))
    assert env.spec.zero_sum
    assert env.spec.utility_range == ((-1, 1), (-1, 1))


def test_shared_fields_are_merged_and_hidden_ones_left_out() -> None:
    from ludus.contrib.envs.kaggle import player_view

    env, timestep = begun("connectx")
    play(env, timestep, {0: 1})
    game: Any = env.game(0)  # type: ignore[attr-defined]
    fields = game.specification.observation
    assert player_view(game.state, 1, fields, 1) == {"board": [0, 0, 0, 1], "mark": 2, "step": 1}
    assert "secret" not in player_view(game.state, 0, fields, 1)
    assert copy.deepcopy(game) == Words((game.text(0), game.text(1)))
    assert json.loads(game.text(1)) == {"board": [0, 0, 0, 1], "mark": 2, "step": 1}


def test_running_sums_are_paid_by_differences() -> None:
    """Two wins, a tie and a loss: 1 is too near to a tie, which the end makes of it."""
    env, timestep = begun("rps", episodeSteps=5)
    rewards = []
    for own, other in ((1, 0), (0, 2), (1, 1)):
        timestep = play(env, timestep, {0: own, 1: other})
        rewards.append(timestep.due[0].reward.tolist())
    assert rewards == [[1], [1], [0]]
    assert timestep.due[0].observation[0, :8].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]
    timestep = play(env, timestep, {0: 0, 1: 1})
    assert timestep.finished.returns.tolist() == [[0, 0]]
    assert timestep.ended[0].reward.tolist() == [-2]
    assert timestep.ended[0].terminated.tolist() == [True]


def test_the_dead_wait_for_the_end() -> None:
    """Goose 0 is out in step 3, goose 1 in step 5: the last one alive wins, with four steps of pay."""
    env, timestep = begun("hungry_geese", players=3)
    assert env.spec.symmetry == ((0, 1, 2),)
    due = []
    while not len(timestep.finished.environment):
        due.append([len(timestep.due[p].slot) for p in range(3)])
        assert all(not timestep.due[p].mask[0, 2] for p in range(3) if len(due) > 1 and len(timestep.due[p].slot))
        timestep = play(env, timestep, dict.fromkeys(range(3), 0))
    assert due == [[1, 1, 1]] * 3 + [[0, 1, 1]] * 2
    assert timestep.finished.returns.tolist() == [[21, 41, 51]]
    assert [timestep.ended[p].slot.tolist() for p in range(3)] == [[0]] * 3
    env, timestep = begun("hungry_geese", players=3, returns="outcome")
    while not len(timestep.finished.environment):
        timestep = play(env, timestep, dict.fromkeys(range(3), 0))
    assert timestep.finished.returns.tolist() == [[-1, 0, 1]]


def test_episodes_draw_from_generators_of_their_own() -> None:
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    expected = random.Random(3).random(), np.random.RandomState(3).random()
    env, timestep = begun("hungry_geese", num_envs=2, players=2)
    alone, other = begun("hungry_geese", seed=6, players=2)
    for _ in range(2):
        for p in range(2):
            np.testing.assert_array_equal(timestep.due[p].observation[1:], other.due[p].observation)
        timestep = env.step((np.zeros(2, np.int64),) * 2)
        other = alone.step((np.zeros(1, np.int64),) * 2)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_each_episode_is_a_new_object_with_its_seed() -> None:
    env, timestep = begun("connectx")
    seeds = []
    for _ in range(3):
        game: Any = env.game(0)  # type: ignore[attr-defined]
        seeds.append(game.configuration.seed)
        for column in (0, 1, 1):  # the second stone of column 1 is above the first
            timestep = play(env, timestep, {0: column, 1: column})
        timestep = play(env, timestep, {0: 0, 1: 0})
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_openspiel_asks_for_masks_and_shows_no_state() -> None:
    env, timestep = begun("open_spiel_tic_tac_toe")
    twin = make_env("openspiel/tic_tac_toe", num_envs=1, tree="off")
    other = twin.reset(np.zeros(1, np.uint64))
    for cell in (4, 0, 8):
        np.testing.assert_array_equal(timestep.due[0].observation, other.due[0].observation)
        timestep, other = (play(e, t, {0: cell, 1: cell}) for e, t in ((env, timestep), (twin, other)))
    assert np.flatnonzero(~timestep.due[1].mask[0]).tolist() == [0, 4, 8]
    game: Any = env.game(0)  # type: ignore[attr-defined]
    assert game.configuration.includeLegalActions
    assert game.text(1) == "o..\n.x.\n..x"


def test_states_written_by_python_are_not_unpickled() -> None:
    """Proxies of the package write a pickle beside the history; here it is no valid one."""
    import pyspiel

    encoder = OpenSpiel({"openSpielGameName": "tic_tac_toe"}, 2, 1)
    blob = "[Game]\ntic_tac_toe_proxy()\n[State]\nhistory=0:4,1:0\nmove_number=2\n__dict__=gASV\n"
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for cell in (4, 0):
        state.apply_action(cell)
    np.testing.assert_array_equal(encoder.observe({STATE: blob}), state.observation_tensor(1))
    assert np.flatnonzero(~encoder.legal({STATE: blob})).tolist() == list(range(9))  # it is the other's turn
    with pytest.raises(EnvError, match="shows no state"):
        encoder.observe({})


def test_a_player_who_fails_ends_a_game_of_two() -> None:
    own = f"{__name__}:MapLength"
    env, timestep = begun("atlas", encode=own)
    timestep = play(env, timestep, {0: 0, 1: 0})
    assert timestep.due[0].reward.tolist() == [1]
    timestep = play(env, timestep, {0: 0, 1: 1})
    assert timestep.finished.returns.tolist() == [[3, -3]]
    assert env.spec.statistics == ("forfeit",)
    assert timestep.finished.statistics.tolist() == [[[0], [1]]]
    env, timestep = begun("atlas", encode=own)
    with pytest.raises(EnvError, match="the move None by its encoder for agent 'player_1'"):
        play(env, timestep, {0: 0, 1: 2})


def test_a_limit_is_an_end_where_the_game_pays() -> None:
    env, timestep = begun("atlas", encode=f"{__name__}:MapLength", episodeSteps=3)
    for _ in range(2):
        timestep = play(env, timestep, {0: 0, 1: 0})
    assert timestep.ended[0].terminated.tolist() == [True]
    env, timestep = begun("open_spiel_tic_tac_toe", episodeSteps=3)
    timestep = play(env, timestep, {0: 0})
    assert timestep.ended[0].terminated.tolist() == [False]  # its reward is still None
    assert timestep.finished.returns.tolist() == [[0, 0]]


def test_names_are_of_games_with_encoders() -> None:
    assert list_envs("kaggle") == [
        "kaggle/connectx",
        "kaggle/hungry_geese",
        "kaggle/open_spiel_tic_tac_toe",
        "kaggle/rps",
    ]


def test_kaggle_refusals() -> None:
    refused: list[Refusal] = [
        ("kaggle/conectx", {}, UnknownName, "connectx"),
        ("kaggle/atlas", {}, ConfigError, "has no encoder here.*encode=module:Class"),
        ("kaggle/connectx", {"colums": 3}, ConfigError, "unknown option 'colums'.*columns"),
        ("kaggle/connectx", {"seed": 3}, ConfigError, "gets a seed for each episode"),
        ("kaggle/connectx", {"players": 3}, ConfigError, "is played by 2"),
        ("kaggle/connectx", {"returns": "won"}, ConfigError, "allowed: reward, outcome"),
        ("kaggle/connectx", {"state": True}, ConfigError, "has no state but what is hidden"),
        ("kaggle/atlas", {"encode": "kaggle_games:Atlas"}, ConfigError, "derive it from"),
    ]
    check_refusals(partial(make_env, num_envs=1), refused)


def test_text_of_a_game() -> None:
    env, _ = begun("connectx")
    assert env.render(0) == "connectx ansi 1"  # type: ignore[attr-defined]


def recorded_match(path: Path, columns: list[int], *, wrong: int = -1, **content: Any) -> list[np.ndarray]:
    """Writes a match of connectx as the package writes replays. Returns what the movers saw. wrong: number of a move
    that is written as a column that there is not."""
    env, timestep = begun("connectx", rows=6, columns=7, inarow=4)
    seen = []
    game: Any = env.game(0)  # type: ignore[attr-defined]
    for k, column in enumerate(columns):
        seen.append(timestep.due[k % 2].observation[0].copy())
        timestep = play(env, timestep, {k % 2: column})
    steps = [[dict(one, action=None) for one in step] for step in game.steps]
    for k, column in enumerate(columns):
        steps[k + 1][k % 2]["action"] = 9 if k == wrong else column
    specification = {"observation": game.specification.observation}
    replay = {"name": "connectx", "steps": steps, "configuration": game.configuration, "specification": specification}
    path.write_text(json.dumps(replay | content))
    return seen


def test_replays_are_demonstrations(tmp_path: Path) -> None:
    seen = recorded_match(tmp_path / "a.json", [3, 2, 3, 2, 3], info={"TeamNames": ["goose", "duck"]})
    recorded_match(tmp_path / "b.json", [0, 1, 1], wrong=2, info={"TeamNames": ["duck", "goose"]})
    recorded = read_replays(tmp_path, "kaggle/connectx", {})
    assert recorded.origin.policies == ("goose", "duck")
    goose, duck = recorded.trajectories
    assert goose.action.tolist() == [3, 3, 3, 1]
    assert duck.action.tolist() == [2, 2, 0]  # and then a column that there is not
    np.testing.assert_array_equal(goose.observation[:3], seen[::2])
    env, _ = begun("connectx", rows=6, columns=7, inarow=4)
    demos, seats = demonstrations(recorded, env.spec, policies=["goose"])
    assert seats == (0, 1)
    assert demos.action.tolist() == [3, 3, 3, 1]


def test_what_is_no_replay_is_refused(tmp_path: Path) -> None:
    recorded_match(tmp_path / "a.json", [3, 2])
    (tmp_path / "b.json").write_text("[]")
    for path, id, error, message in (
        (tmp_path / "a.json", "kaggle/rps", DataError, "is a replay of 'connectx'"),
        (tmp_path / "b.json", "kaggle/connectx", DataError, "b.json' is no replay of Kaggle"),
        (tmp_path / "c.json", "kaggle/connectx", DataError, "No such file"),
        (tmp_path / "a.json", "gymnasium/CartPole-v1", ConfigError, "the scenario plays gymnasium/CartPole-v1"),
    ):
        with pytest.raises(error, match=re.escape(message)):
            read_replays(path, id, {})
