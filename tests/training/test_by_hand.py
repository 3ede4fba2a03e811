"""A learner that is fed by hand: rows of one's own, of a file, or played; and the policy that comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import ludus
from ludus.apps.episodes.trajectory_export import record_trajectories
from ludus.core.errors import ConfigError, DataError, PolicyError, ScenarioError, TableClosed
from ludus.core.types import EnvSpec, Mixture, PolicyRef, PolicySpec, SegmentEnd
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.parquet import TrajectoryFile, TrajectoryOrigin
from ludus.replay.trajectories import Trajectories
from ludus.training.standalone import StandaloneLearner, rows_from_columns

POLE = "gymnasium/CartPole-v1"
SPEC = make_env(POLE, num_envs=1).spec
KUHN = "openspiel/kuhn_poker"


def arrays(rows: int = 12, **columns: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "observation": rng.normal(size=(rows, 4)),
        "next_observation": rng.normal(size=(rows, 4)),
        "action": rng.integers(0, 2, rows),
        "reward": np.ones(rows),
        "terminated": np.arange(rows) % 5 == 4,
        "logp": np.full(rows, -0.7),
        **columns,
    }


def made(algorithm: str = "ppo", **options: Any) -> StandaloneLearner:
    unit = {"batch_unit": "episodes"} if algorithm == "ppo" else {}
    return ludus.learner(algorithm, env=POLE, device="cpu", **{"hidden": [8], **unit, **options})


def differ(one: Any, other: Any) -> bool:
    return any(not np.array_equal(array, other[name]) for name, array in one.items())


# ---------------------------------------------------------------------------------------------- rows of one's own


def test_arrays_become_segments_by_hand() -> None:
    """Rows 0, 1 end in time, row 2 terminates, and rows 3, 4 go on."""
    given = arrays(5, truncated=[0, 1, 0, 0, 0], terminated=[False, False, True, False, False])
    rows = rows_from_columns(given, SPEC)
    assert rows.start.tolist() == [0, 2, 3, 5]
    assert rows.tail.tolist() == [SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED, SegmentEnd.CUT]
    assert rows.t.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(rows.bootstrap_observation, given["next_observation"][[1, 2, 4]].astype(np.float32))
    assert (rows.observation.dtype, rows.action.dtype, rows.mask) == (np.float32, np.int32, None)


def test_observations_after_an_end_are_optional() -> None:
    ended = arrays(5, next_observation=None)
    assert rows_from_columns(ended, SPEC).bootstrap_observation.tolist() == [[0.0] * 4]
    with pytest.raises(DataError, match="next_observation is missing, and some rows end without having terminated"):
        rows_from_columns(arrays(6, next_observation=None), SPEC)
    legal = np.ones((6, 2), np.bool_)
    assert rows_from_columns(arrays(5, mask=legal[:5]), SPEC).bootstrap_mask is not None
    after = arrays(6, mask=legal, next_mask=[[False, False]] * 5 + [[True, False]])  # nothing is legal after the end
    assert rows_from_columns(after, SPEC).bootstrap_mask.tolist() == [[False, False], [True, False]]
    with pytest.raises(DataError, match="next_mask is missing, and some rows end without having terminated"):
        rows_from_columns(arrays(6, mask=legal), SPEC)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"rewards": [1.0]}, "a column 'rewards' was given; did you mean 'reward'"),
        ({"reward": None}, "the columns reward are missing. Given: observation, "),
        ({"logp": None}, "the columns logp are missing; `act` answers the log-probabilities of what it chose"),
        ({"observation": np.zeros((12, 3))}, r"column 'observation' has shape \[12, 3\]; expected \[12, 4\]: one entry for each"),
        ({"terminated": [True]}, r"column 'terminated' has shape \[1\]; expected \[12\]"),
        ({"mask": np.ones((12, 1), np.bool_)}, r"column 'mask' has shape \[12, 1\]; expected \[12, 2\]"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        rows_from_columns(arrays(**columns), SPEC, needs_logp=True)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"action": [0, 1, 2]}, r"column 'action', 1 of 3 rows: row 2 has 2; expected whole numbers from 0 to 1, as `act` answers them for "
            "gymnasium/CartPole-v1. Count them from 0"),
        ({"action": [-1, 0, -1]}, "column 'action', 2 of 3 rows: row 0 has -1"),
        ({"action": [0, 1 << 32, 1]}, "column 'action', 1 of 3 rows: row 1 has 4294967296"),
        ({"action": [0.5, 1.0, np.nan]}, "column 'action', 2 of 3 rows: row 0 has 0.5"),
        ({"action": [[0], [1], [1, 1]]}, "column 'action' has rows of several shapes; give one array"),
        ({"reward": [1.0, None, 1.0]}, "column 'reward' holds object; expected numbers or truth values"),
        ({"reward": 1.0}, r"column 'observation' has shape \[3, 4\]; expected \['n', 4\]"),
        ({"action": [1, 0, 0], "mask": [[1, 0], [1, 0], [0, 1]], "next_mask": np.ones((3, 2))}, "column 'action', 2 of 3 rows: row 0 "
            "has 1; expected actions that are legal, as the row's mask has it. Give those that were played"),
        ({"mask": np.ones((3, 2)), "next_mask": np.zeros((3, 2))}, r"column 'next_mask', 1 of 3 rows: row 2 has \[0.0, 0.0\]; expected a "
            "legal action wherever an episode goes on"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        made().update(arrays(3, **columns))


def test_whole_numbers_may_be_floats() -> None:
    rows = rows_from_columns(arrays(3, action=[0.0, 1.0, 1.0]), SPEC)
    assert (rows.action.tolist(), rows.action.dtype) == ([0, 1, 1], np.int32)


def of_space(action: Space[Any]) -> EnvSpec:
    return replace(SPEC, agents=(replace(SPEC.agents[0], action=action),))


def test_actions_of_other_spaces() -> None:
    several = of_space(MultiDiscrete([2, 3]))
    assert rows_from_columns(arrays(2, action=[[1, 2], [0, 0]]), several).action.tolist() == [[1, 2], [0, 0]]
    with pytest.raises(
        DataError, match=r"1 of 2 rows: row 1 has \[2, 1\]; expected whole numbers from 0, below \[2, 3\]"
    ):
        rows_from_columns(arrays(2, action=[[1, 2], [2, 1]]), several)
    wide = {"mask": [[1, 1, 1, 1, 0]] * 2, "next_mask": [[1] * 5] * 2}
    with pytest.raises(DataError, match=r"row 0 has \[1, 2\]; expected actions that are legal"):
        rows_from_columns(arrays(2, action=[[1, 2], [0, 0]], **wide), several)
    with pytest.raises(DataError, match=r"column 'mask' has shape \[2, 3\]; expected \[2, 5\]"):
        rows_from_columns(arrays(2, action=[[1, 2], [0, 0]], mask=np.ones((2, 3))), several)
    box = of_space(Box(-1.0, 1.0, (1,)))
    assert rows_from_columns(arrays(2, action=[[1], [0]]), box).action.dtype == np.float32
    for wrong in (np.nan, np.inf, 1e300):
        with pytest.raises(
            DataError, match=r"column 'action', 1 of 2 rows: .*; expected finite numbers. Leave out rows without"
        ):
            rows_from_columns(arrays(2, action=[[0.0], [wrong]]), box)
    with pytest.raises(DataError, match=r"column 'mask' was given; actions of .* are Box.*, all legal. Leave it out"):
        rows_from_columns(arrays(2, action=[[0.0], [0.0]], mask=np.ones((2, 1))), box)


def states(observation: list[Any], following: list[Any], **columns: Any) -> dict[str, Any]:
    given = arrays(len(observation), observation=observation, next_observation=following, terminated=[False, True])
    return {**given, "action": [0, 1], **columns}


def test_information_states_that_are_not_there() -> None:
    """Kuhn poker has six of each player."""
    both = ludus.learner("ppo", env=KUHN, hidden=[8])
    assert both.update(states([0, 11], [11, -1]))["rows"] == 2
    assert both.rows(states([0.0, 11.0], [11.0, -1.0])).observation.dtype == np.int32
    for wrong in (-1, 12, 10**8, 0.5):
        with pytest.raises(DataError, match=r"column 'observation', 1 of 2 rows: row 1 has .*; expected information states of "
                r"openspiel/kuhn_poker that the players \[0, 1\] decide in: 0 to 5 and 6 to 11. Give the numbers"):  # fmt: skip
            both.update(states([0, wrong], [1, -1]))
    with pytest.raises(
        DataError, match=r"column 'next_observation', 1 of 2 rows: row 1 has 12; .* -1 where there is none"
    ):
        both.update(states([0, 1], [1, 12]))
    with pytest.raises(DataError, match="column 'next_observation', 1 of 2 rows: row 1 has -1; "):
        both.update(states([0, 1], [1, -1], terminated=[True, False]))
    second = ludus.learner("ppo", env=KUHN, players=[1], hidden=[8])
    assert second.update(states([6, 7], [7, -1]))["rows"] == 2
    with pytest.raises(
        DataError, match=r"row 0 has 0; expected information states of .* the players \[1\] decide in: 6 to 11"
    ):
        second.update(states([0, 7], [7, -1]))


def test_rows_of_another_game_are_rejected() -> None:
    leduc = ludus.learner("ppo", env="openspiel/leduc_poker", hidden=[8], batch=20)
    kuhn = ludus.learner("ppo", env=KUHN, hidden=[8], batch=20)
    with pytest.raises(
        DataError, match=r"the batch's observations, .* expected information states of openspiel/kuhn_poker"
    ):
        kuhn.update(leduc.collect())
    with pytest.raises(
        DataError, match=r"the batch's observations have the shape \(\); expected \(4,\), as in gymnasium/CartPole-v1"
    ):
        made().update(kuhn.collect())


# ---------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "nfsp"])
def test_one_update_from_exactly_these_rows(algorithm: str) -> None:
    with_hidden = {"best_response": {"hidden": [8]}} if algorithm == "nfsp" else {}
    learner = made(algorithm, **with_hidden)
    before = learner.weights()
    metrics = learner.update(arrays())
    assert {name for name in metrics if name.endswith("loss")}
    assert differ(before, learner.weights())
    assert not differ(learner.policy.weights(), learner.weights())


def test_slopes_of_the_weights_that_acted_by_hand() -> None:
    """Rows that were played before the last update are late by one version, and a learner by hand says so."""
    learners = [made("a2c", batch=40, **options) for options in ({}, {"gradients": "acting", "max_lag": 2})]
    for learner in learners:
        early, late = learner.collect(), learner.collect()
        learner.update(early)
        learner.update(late)
    assert learners[1]._learner._history.snapshots.keys() == {0, 1, 2}  # type: ignore[attr-defined]
    assert differ(learners[0].weights(), learners[1].weights())


def test_the_loss_of_replayed_rows_by_hand() -> None:
    """Of rows that all terminate, with the reward 3: the errors q − 3 are above 1, so that Huber's loss is |q − 3| − ½."""
    learner, given = made("dqn", scale_rewards=False), arrays(terminated=np.ones(12, np.bool_), reward=np.full(12, 3.0))
    policy: Any = learner.policy
    q = policy.values(given["observation"].astype(np.float32), None, None, None)[1]
    taken = q[np.arange(12), given["action"]]
    assert taken.max() < 2
    assert learner.update(given)["loss"] == pytest.approx((3.0 - taken - 0.5).mean(), rel=1e-5)


def test_learning_as_in_a_run_replays() -> None:
    """Nothing is due before 20 decisions; half an update for each after that."""
    learner = made("dqn", min_size=20, batch=4, updates_per_decision=0.5)
    assert learner.learn(arrays(20)) == {}
    before = learner.weights()
    assert learner.learn(arrays(10))["rows"] == 4.0
    assert differ(before, learner.weights())


def test_episodes_are_numbered_from_call_to_call() -> None:
    """Arrays of 12 rows end after rows 4 and 9, and what follows goes on in the next call: a statistic of episodes counts it once."""
    learner, other = made(), made()
    first = int(learner.rows(arrays()).episode[0])

    def numbers(each: StandaloneLearner, rows: int = 12) -> list[int]:
        return (each.rows(arrays(rows)).episode - first).tolist()

    assert numbers(learner) == [0, 1, 2]
    learner.update(arrays())
    assert numbers(learner) == [2, 3, 4], "looking at rows gives them no number"
    learner.learn(arrays(5))
    assert numbers(learner, 4) == [3], "the last one ended"
    learner.update(arrays(4))
    other.load_state_dict(learner.state_dict())
    assert set(learner.collect(2).episode.tolist()) == {0, 1}, "what it plays is none of those"
    for each in (learner, other):
        assert numbers(each) == [3, 4, 5]


def test_standalone_learner_acts_with_its_newest_weights() -> None:
    learner = made(batch=3)
    played = learner.collect()
    assert np.unique(played.episode).tolist() == [0, 1, 2]
    again = learner.collect(2)
    assert again.episode.min() > played.episode.max()
    learner.update(played)
    assert learner.collect().version_lo.tolist() == [1, 1, 1]
    learner.close()
    with pytest.raises(TableClosed):
        learner.learn(played)


def test_it_goes_on_to_the_bit() -> None:
    one, other = made(batch=3), made(batch=3)
    one.update(one.collect())
    other.load_state_dict(one.state_dict())
    for learner in (one, other):
        learner.update(learner.collect())
    assert not differ(one.weights(), other.weights())


def pendulum(seed: int = 0, algorithm: str = "sac", **options: Any) -> StandaloneLearner:
    """Its episodes have 200 steps, in each of 16 environments."""
    few = {"start_decisions": 50, "batch": 8} if algorithm == "sac" else {}
    return ludus.learner(algorithm, env="gymnasium/Pendulum-v1", hidden=[8], device="cpu", seed=seed, **few, **options)


def test_open_episodes_go_on() -> None:
    learner = pendulum()
    parts = [learner.collect(160) for _ in range(22)]
    assert [int(rows.t.min()) for rows in parts[:3]] == [0, 10, 20]
    assert [int(rows.t.max()) for rows in parts[:20]] == list(range(9, 200, 10))
    assert (parts[19].tail == SegmentEnd.TRUNCATED).all(), "episodes are completed"
    assert [int(rows.t.max()) for rows in parts[20:]] == [9, 19]
    assert all(set(rows.episode.tolist()) == set(range(16)) for rows in parts[:20])
    assert all(set(rows.episode.tolist()) == set(range(16, 32)) for rows in parts[20:]), "and new ones begin"
    last = dict(zip(parts[0].episode.tolist(), parts[0].bootstrap_observation, strict=True))
    for episode, row in zip(parts[1].episode.tolist(), parts[1].start[:-1], strict=True):
        np.testing.assert_array_equal(parts[1].observation[row], last[episode])


def test_newer_weights_act_on_in_open_episodes() -> None:
    learner = pendulum()
    for version in range(4):
        rows = learner.collect(32)
        assert (rows.t.min(), rows.t.max()) == (2 * version, 2 * version + 1)
        assert set(rows.version_lo.tolist()) == set(rows.version_hi.tolist()) == {version}
        learner.update(rows)


def test_memory_goes_on_with_open_episodes() -> None:
    """Nothing is remembered where episodes begin; where they go on, something is."""
    learner = made("a2c", memory="gru")
    parts = [learner.collect(64) for _ in range(2)]
    assert parts[0].memory0 is not None
    assert parts[1].memory0 is not None
    assert not parts[0].memory0.any()
    assert parts[1].memory0[parts[1].t[parts[1].start[:-1]] > 0].any(axis=1).all()


def test_arrays_leave_open_episodes_as_they_are() -> None:
    """What is played on has the numbers that it had, and arrays get others."""
    learner = pendulum()
    played = learner.collect(160)
    given = {
        **arrays(12),
        "observation": np.zeros((12, 3)),
        "next_observation": np.zeros((12, 3)),
        "action": np.zeros((12, 1)),
    }
    learner.learn(given)
    on = learner.collect(160)
    assert set(on.episode.tolist()) == set(played.episode.tolist())
    assert on.t.min() == 10
    assert not set(learner.rows(given).episode.tolist()) & set(played.episode.tolist())


@pytest.mark.slow
def test_a_state_begins_episodes_anew_here_and_there() -> None:
    """The learner that was saved goes on as the one that was loaded, to the bit; a state of earlier weights plays by those, whatever was
    played before by others of the same version."""
    one, other = pendulum(), pendulum()
    for _ in range(3):
        one.learn(one.collect(160))
    other.collect(160)
    for _ in range(3):
        other.update(other.collect(32))
    other.load_state_dict(one.state_dict())
    for k in range(3):
        rows, same = one.collect(160), other.collect(160)
        assert rows.t.tolist() == same.t.tolist()
        assert (int(rows.t.min()), int(rows.t.max())) == (10 * k, 10 * k + 9)
        for name in ("observation", "action", "logp", "reward", "episode", "version_lo"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(same, name))
        one.learn(rows)
        other.learn(same)
    assert not differ(one.weights(), other.weights())


def test_others_who_change_begin_episodes_anew_and_play() -> None:
    """The same objects go on; others do not, and it is they who play."""
    learner = ludus.learner("a2c", env=KUHN, hidden=[8], device="cpu")
    always = [build_policy(learner.spec, biased(learner, action)) for action in (0, 1)]
    passing, betting = learner.collect(500, others={1: always[0]}), learner.collect(500, others={1: always[1]})
    assert betting.episode.min() > passing.episode.max()
    again = ludus.learner("a2c", env=KUHN, hidden=[8], device="cpu")
    again.collect(500)
    fresh = again.collect(500, others={1: always[1]})
    np.testing.assert_array_equal(betting.reward, fresh.reward)
    assert learner.collect(500, others={1: always[1]}).episode.min() <= betting.episode.max() + 16


def biased(learner: StandaloneLearner, action: int) -> dict[str, Any]:
    """Weights of a policy that always plays this of two actions."""
    return {
        name: np.where(np.arange(2) == action, 50.0, -50.0).astype(np.float32) if array.shape == (2,) else array
        for name, array in learner.weights().items()
    }


def test_games_of_several() -> None:
    """By itself it learns from both players' decisions; against somebody from its own."""
    both = ludus.learner("ppo", env=KUHN, hidden=[8], batch=5)
    assert sorted(set(both.collect().seat.tolist())) == [0, 1]
    random = build_policy(PolicySpec("random", {"actions": 2}), {})
    assert set(both.collect(others={1: random}).seat.tolist()) == {0}
    first = ludus.learner("ppo", env=KUHN, players=[0], hidden=[8], batch=5)
    with pytest.raises(ScenarioError, match=r"others play \[7\]; the game has the players 0 to 1"):
        both.collect(others={7: random})
    with pytest.raises(ScenarioError, match=r"nobody plays the players \[1\]: give others=\{1: policy, …\}"):
        first.collect()
    assert first.update(first.collect(others={1: random}))["rows"] > 0


def test_modes_are_played_as_in_a_run() -> None:
    """NFSP plays some episodes by its best response, and imitates those."""
    learner = ludus.learner("nfsp", env=KUHN, players=[0], best_response={"hidden": [8]}, anticipation=0.5, hidden=[8])
    random = build_policy(PolicySpec("random", {"actions": 2}), {})
    metrics = learner.update(learner.collect(40, others={1: random}))
    assert {"imitation_loss", "best_response_loss"} <= metrics.keys()


def recorded(file: Path, env: str, *, actions: int, players: tuple[int, ...] = ()) -> int:
    """How many decisions of somebody who plays at random were written."""
    pytest.importorskip("pyarrow")
    anyone = build_policy(PolicySpec("random", {"actions": actions}), {})
    made = make_env(env, num_envs=4)
    mixture = Mixture.product({p: ([PolicyRef(p, "anyone")], [1.0]) for p in range(made.spec.num_players)})
    return record_trajectories(file, made, mixture, lambda ref: anyone, episodes=20, players=players).decisions


def test_decisions_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "games.parquet"
    decisions = recorded(file, KUHN, actions=2)
    learner = ludus.learner("ppo", env=KUHN, hidden=[8])
    assert learner.update(file)["rows"] == decisions
    seats = learner.rows(file).seat
    second = ludus.learner("ppo", env=KUHN, players=[1], hidden=[8])
    assert second.rows(file).seat.tolist() == seats[seats == 1].tolist()
    assert 0 < second.update(file)["rows"] < decisions


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    file, other = tmp_path / "games.parquet", tmp_path / "leduc.parquet"
    recorded(file, KUHN, actions=2, players=(0,))
    recorded(other, "openspiel/leduc_poker", actions=3)
    learner = ludus.learner("ppo", env=KUHN, players=[1], hidden=[8])
    with pytest.raises(
        DataError,
        match="has decisions of 'openspiel/leduc_poker', and this learner plays 'openspiel/kuhn_poker'; give it",
    ):
        learner.update(other)
    with pytest.raises(
        DataError, match="has decisions of 'openspiel/kuhn_poker', and this learner plays 'gymnasium/CartPole-v1'"
    ):
        made().update(file)
    with pytest.raises(
        DataError,
        match=r"has decisions of the players \[0\], and this learner plays \[1\]; record those \(`ludus record",
    ):
        learner.update(file)


def test_files_that_were_changed(tmp_path: Path) -> None:
    """Actions, masks and information states that there are not in the game that they name, or another space of actions."""
    pytest.importorskip("pyarrow")
    learner = ludus.learner("ppo", env=KUHN, hidden=[8], batch=3)
    rows, agent = learner.collect(), learner.env.agents[0]
    origin = TrajectoryOrigin(KUHN, 2, (0, 1), agent.observation, agent.action, ("mine",))

    def write(rows: Trajectories, **changes: Any) -> Path:
        with TrajectoryFile(tmp_path / "changed.parquet", replace(origin, **changes)) as file:
            file.write(replace(rows, memory0=None))
        return tmp_path / "changed.parquet"

    assert learner.rows(write(rows)).num_rows == rows.num_rows
    with pytest.raises(DataError, match=r"the file has actions of Discrete\(3\)"):
        learner.update(write(rows, action=Discrete(3)))
    with pytest.raises(DataError, match=r"the batch's actions, .* row 0 has 7; expected whole numbers from 0 to 1"):
        learner.update(write(replace(rows, action=np.full_like(rows.action, 7))))
    with pytest.raises(DataError, match="the file has information states that openspiel/kuhn_poker does not have"):
        learner.update(write(replace(rows, observation=np.full_like(rows.observation, 10**8))))
    with pytest.raises(DataError, match=r"the batch's final observations, .* row 0 has 12"):
        learner.update(write(replace(rows, bootstrap_observation=np.full_like(rows.bootstrap_observation, 12))))
    with pytest.raises(
        DataError, match=r"the batch's actions, .* expected actions that are legal, as the row's mask has it"
    ):
        learner.update(write(replace(rows, mask=np.zeros((rows.num_rows, 2), np.bool_), bootstrap_mask=None)))


# ---------------------------------------------------------------------------------------------- a loop of one's own


def test_a_loop_of_ones_own_and_the_policy_that_comes_of_it(tmp_path: Path) -> None:
    learner, env = made(), gym.make("CartPole-v1")
    rows: dict[str, list[Any]] = {
        name: [] for name in ("observation", "action", "reward", "terminated", "logp", "next_observation")
    }
    seen, _ = env.reset(seed=0)
    for _ in range(15):
        action, logp = learner.act(seen[None])
        after, reward, terminated, _, _ = env.step(int(action[0]))
        for name, value in zip(rows, (seen, action[0], reward, terminated, logp[0], after), strict=True):
            rows[name].append(value)
        seen = env.reset()[0] if terminated else after
    assert learner.update(rows)["rows"] == 15
    learner.save(tmp_path / "mine.safetensors")
    policy = ludus.load_policy(tmp_path / "mine.safetensors")
    assert not differ(policy.weights(), learner.weights())
    assert policy.play(gym.make("CartPole-v1"), seed=0) > 0
    again = made(start=tmp_path / "mine.safetensors")
    assert not differ(again.weights(), learner.weights())
    with pytest.raises(PolicyError):
        made("dqn", start=policy.policy)


def test_standalone_learner_rejects_mismatched_arguments() -> None:
    with pytest.raises(ConfigError, match="an object was given as algorithm, and the options"):
        ludus.learner(ludus.PPO(), env=POLE, batch=3)
    with pytest.raises(ConfigError, match="'exact' is not an algorithm"):
        ludus.learner("exact", env=KUHN)
    with pytest.raises(ScenarioError, match="Use "):
        ludus.learner("sac", env=POLE)


# ---------------------------------------------------------------------------------------------- networks of others


def test_networks_made_as_tianshou_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Net(state_shape=…, hidden_sizes=…)`, whose forward answers (features, state) of (obs, state, info): the example's few lines make a
    network of it, in PPO and in DQN."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    network = {"kind": "tianshou_network:Body", "net": "tianshou_network:LikeNet", "hidden_sizes": [16]}
    for algorithm, option in (("ppo", "network"), ("dqn", "body")):
        learner = ludus.learner(algorithm, env=POLE, **{option: network})
        assert any("net.model.model.0.weight" in name for name in learner.weights())
        before = learner.weights()
        learner.update(arrays())
        assert differ(before, learner.weights())
