"""A learner that is fed by hand: rows of one's own, of a file, or played; and the policy that comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ludus
from ludus.core.errors import ConfigError, DataError, PolicyError, ScenarioError, TableClosed
from ludus.core.types import Mixture, PolicyRef, PolicySpec, Tail
from ludus.envs.registry import make_env
from ludus.evaluation.trajectories import record_trajectories
from ludus.policies.registry import build_policy
from ludus.training.by_hand import HandLearner, rows_of

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


def made(algorithm: str = "ppo", **options: Any) -> HandLearner:
    return ludus.learner(algorithm, env=POLE, device="cpu", hidden=[8], **options)


def differ(one: Any, other: Any) -> bool:
    return any(not np.array_equal(array, other[name]) for name, array in one.items())


# ---------------------------------------------------------------------------------------------- rows of one's own


def test_arrays_become_segments_by_hand() -> None:
    """Rows 0, 1 end in time, row 2 terminates, and rows 3, 4 go on."""
    given = arrays(5, truncated=[0, 1, 0, 0, 0], terminated=[False, False, True, False, False])
    rows = rows_of(given, SPEC)
    assert rows.start.tolist() == [0, 2, 3, 5]
    assert rows.tail.tolist() == [Tail.TRUNCATED, Tail.TERMINATED, Tail.CUT]
    assert rows.t.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(rows.bootstrap_observation, given["next_observation"][[1, 2, 4]].astype(np.float32))
    assert (rows.observation.dtype, rows.action.dtype, rows.mask) == (np.float32, np.int32, None)


def test_what_follows_an_end_need_not_be_given() -> None:
    ended = arrays(5, next_observation=None)
    assert rows_of(ended, SPEC).bootstrap_observation.tolist() == [[0.0] * 4]
    with pytest.raises(DataError, match="next_observation is missing, and some rows end without having terminated"):
        rows_of(arrays(6, next_observation=None), SPEC)
    legal = np.ones((6, 2), np.bool_)
    assert rows_of(arrays(5, mask=legal[:5]), SPEC).bootstrap_mask is not None
    assert rows_of(arrays(6, mask=legal, next_mask=~legal), SPEC).bootstrap_mask.tolist() == [[False, False]] * 2
    with pytest.raises(DataError, match="next_mask is missing, and some rows end without having terminated"):
        rows_of(arrays(6, mask=legal), SPEC)


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
        rows_of(arrays(**columns), SPEC, needs_logp=True)


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
    assert learner.rows(arrays()).episode.tolist() == [0, 1, 2]
    learner.update(arrays())
    assert learner.rows(arrays()).episode.tolist() == [2, 3, 4], "looking at rows gives them no number"
    learner.learn(arrays(5))
    assert learner.rows(arrays(4)).episode.tolist() == [3], "the last one ended"
    learner.update(arrays(4))
    other.load_state_dict(learner.state_dict())
    assert set(learner.collect(2).episode.tolist()) == {4, 5}, "what it plays is none of those"
    for each, expected in ((learner, [3, 6, 7]), (other, [3, 4, 5])):
        assert each.rows(arrays()).episode.tolist() == expected


def test_what_it_plays_is_what_it_learned_last() -> None:
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


def test_decisions_of_a_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    anyone = build_policy(PolicySpec("random", {"actions": 2}), {})
    mixture = Mixture.product({p: ([PolicyRef(p, "anyone")], [1.0]) for p in range(2)})
    file = tmp_path / "games.parquet"
    written = record_trajectories(file, make_env(KUHN, num_envs=4), mixture, lambda ref: anyone, episodes=20)
    learner = ludus.learner("ppo", env=KUHN, hidden=[8])
    assert learner.update(file)["rows"] == written.decisions


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


def test_what_does_not_fit_is_refused() -> None:
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
