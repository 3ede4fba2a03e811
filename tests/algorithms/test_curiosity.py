"""Random network distillation and the intrinsic curiosity module, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from reward_tools import alone, context_of, rows_of

from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.rewards.base import NOTHING_AFTER
from ludus.backend.device import Placement
from ludus.contrib.algorithms.curiosity.config import ICM, RND
from ludus.contrib.algorithms.curiosity.icm import CuriosityModule, forward_error, module_loss
from ludus.contrib.algorithms.curiosity.reward import continuing_advantages, fold_intrinsic_stream
from ludus.contrib.algorithms.curiosity.rnd import distillation_error
from ludus.contrib.algorithms.learned_rewards.inputs import Actions, Observations, Steps
from ludus.core.errors import TrainingError
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.testing.algorithm import synthetic_rollout

HERE = Placement("cpu", written=False, precision="float32", why="a test")


def reward_of(config, env, *, replayed=False):
    return config.build(context_of(env), HERE, replayed=replayed, gamma=0.99)


def says(stream, value):
    """Has its critic answer such values, whatever it learns."""
    parameters = list(stream._critic.module.parameters())
    stream._values = lambda x: value(x) + 0.0 * sum(parameter.sum() for parameter in parameters)


# ------------------------------------------------------------------ two streams


def test_a_stream_that_goes_on_behind_an_episodes_end():
    """Two segments of two decisions: one terminates, after which an episode begins, worth 10; one is cut, and goes on to what is worth 4.

    γ = 0.5, λ = 0.5: δ = (1 + 0.5 × 2 - 1, 2 + 0.5 × 10 - 2), A = (1 + 0.25 × 5, 5); δ = (0 + 1 - 1, 1 + 2 - 2), A = (0.25, 1).
    """
    start, tail = np.array([0, 2, 4]), np.array([0, 2], np.int8)
    reward, value, after = np.array([1.0, 2, 0, 1]), np.array([1.0, 2, 1, 2]), np.array([100.0, 4])
    given = (start, tail, reward, value, after)
    advantage, target = continuing_advantages(*given, beginning=10.0, gamma=0.5, lam=0.5)
    np.testing.assert_allclose(advantage, [2.25, 5.0, 0.25, 1.0])
    np.testing.assert_allclose(target, [3.25, 7.0, 1.25, 3.0])
    episodic, _ = continuing_advantages(*given, beginning=None, gamma=0.5, lam=0.5)
    np.testing.assert_allclose(episodic, [1.0, 0.0, 0.25, 1.0])


def test_values_that_end_with_an_episode_hold_a_stream_that_does_not():
    """A random chain of five states, in which episodes end or go on, solved exactly: what one set of values with the game's discount learns
    from the rewards is the sum of both streams' own values. It is so whatever the two discounts are."""
    rng = np.random.default_rng(3)
    move = 0.7 * rng.dirichlet(np.ones(5), 5)  # an episode ends with 0.3
    beginning, game, novelty = rng.dirichlet(np.ones(5)), rng.standard_normal(5), rng.random(5)
    for gamma, own in ((0.9, 0.9), (0.99, 0.8), (0.5, 0.95)):
        ends = np.linalg.solve(np.eye(5) - gamma * move, game)
        goes_on = np.linalg.solve(np.eye(5) - own * (move + 0.3 * beginning), novelty)
        kept = [
            fold_intrinsic_stream(
                novelty[s : s + 1].repeat(6), np.append(goes_on, beginning @ goes_on), last, own=own, gamma=gamma
            )
            for last in [np.arange(6) == 5]
            for s in range(5)
        ]
        reward = game + np.array([np.append(move[s], 0.3) @ kept[s] for s in range(5)])
        values = np.linalg.solve(np.eye(5) - gamma * move, reward)
        np.testing.assert_allclose(values, ends + goes_on, rtol=1e-12)


@pytest.mark.parametrize(("episodic", "behind"), [(False, 2.0), (True, 0.0)])
def test_replayed_rows_hold_both_reward_streams(episodic, behind):
    """Novelty 1 everywhere, γ = 0.5 of the stream and 0.9 of action values. Observations are worth their first number, to the critic: the
    episode that begins is worth 2, what comes after the cut 6. Of three decisions the first leads to what is worth 4, the second ends the
    episode, the third is cut: 1 + (0.5 - 0.9) × 4, 1 + 0.5 × 2, 1 + (0.5 - 0.9) × 6."""
    config = RND(gamma=0.5, extrinsic=2.0, coefficient=10.0, normalise_observations=False, episodic=episodic)
    learned = config.build(context_of(alone()), HERE, replayed=True, gamma=0.9)
    learned._novelty.errors = lambda steps: np.ones(len(steps))
    learned._novelty.learn = lambda *_: {}
    learned._returns.add = lambda *_: None  # a scale of 1
    says(learned._stream, lambda x: x[:, 0])
    seen = np.array([[2.0, 0], [4.0, 0], [2.0, 0]], np.float32)
    rows = rows_of(
        seen,
        np.zeros(3, np.int32),
        lengths=[2, 1],
        tail=[SegmentEnd.TERMINATED, SegmentEnd.CUT],
        bootstrap=[[100.0, 0], [6.0, 0]],
    )
    found = learned.of(rows, np.array([5.0, 0.0, 7.0]))
    expected = [10 + 10 * (1 - 0.4 * 4), 10 * (1 + 0.5 * behind), 14 + 10 * (1 - 0.4 * 6)]
    np.testing.assert_allclose(found.reward, expected, rtol=1e-6)
    assert found.advantage is None
    assert learned.metrics["learned_reward"] == pytest.approx(1.0)
    assert {"game_reward", "intrinsic_value_loss"} <= learned.metrics.keys()


def test_an_episode_that_nobody_saw_the_end_of_ends_for_action_values_too(enumerated):
    """An id of -1 has no action values, whatever the stream says of it."""
    config = RND(gamma=0.5, hidden=(4,), features=3)
    learned = config.build(context_of(enumerated), HERE, replayed=True, gamma=0.9)
    learned._novelty.errors = lambda steps: np.ones(len(steps))
    learned._returns.add = lambda *_: None
    values = np.array([3.0, -1.0], np.float32)
    says(learned._stream, lambda x: torch.full((len(x),), 4.0))
    rows = rows_of(
        np.array([1, 2]), np.zeros(2, np.int32), lengths=[1, 1], tail=[SegmentEnd.TRUNCATED] * 2, bootstrap=values
    )
    found = learned.of(rows, np.zeros(2))
    np.testing.assert_allclose(found.reward, [1 - 0.4 * 4, 1 + 0.5 * 4], rtol=1e-6)


def test_an_episode_that_was_truncated_goes_on_from_its_own_last_observation():
    """Worth 4, not 10."""
    given = np.array([0, 1]), np.array([1], np.int8), np.array([1.0]), np.array([2.0]), np.array([4.0])
    advantage, _ = continuing_advantages(*given, beginning=10.0, gamma=0.5, lam=0.9)
    np.testing.assert_allclose(advantage, [1.0])


def test_the_beginning_is_worth_the_mean_over_first_observations():
    """Of a fragment's segments only those count whose episodes were not open before; where none begins, the last mean stays."""
    learned = reward_of(RND(hidden=(4,), features=3, normalise_observations=False), alone())
    rng = np.random.default_rng(0)
    seen = [rng.standard_normal((3, 2)).astype(np.float32) for _ in range(3)]
    values = learned._stream._values

    def told(observation, episode, tail):
        with torch.no_grad():
            value = values(torch.from_numpy(observation)).numpy().copy()
        rows = rows_of(observation, np.zeros(3, np.int32), lengths=[1, 1, 1], tail=tail, episode=episode)
        learned.of(rows, np.zeros(3))
        return value

    first = told(seen[0], [0, 1, 2], [2, 2, 0])
    assert learned._stream._beginning == pytest.approx(first.mean(), rel=1e-5)
    second = told(seen[1], [0, 1, 3], [2, 2, 2])
    assert learned._stream._beginning == pytest.approx(second[2], rel=1e-5)
    told(seen[2], [0, 1, 3], [2, 2, 2])
    assert learned._stream._beginning == pytest.approx(second[2], rel=1e-5)


def test_bootstrap_observations_marked_absent_are_ignored():
    """As an id of -1 is, though its row shows numbers."""
    seen = np.array([[0.5, -0.5], [1.0, 2.0]], np.float32)
    given = {"lengths": [1, 1], "tail": [SegmentEnd.TRUNCATED, SegmentEnd.TRUNCATED]}
    for nothing in ([True, False], [False, False]):
        found = []
        for bootstrap in (seen, seen + np.array([[3.0], [0.0]], np.float32)):
            rows = rows_of(seen, np.zeros(2, np.int32), bootstrap=bootstrap, **given)
            rows = replace(rows, extras={NOTHING_AFTER: np.array(nothing)})
            stream = reward_of(
                RND(hidden=(8,), features=3, streams="two", normalise_observations=False), alone()
            )._stream
            found.append(stream.advantages(rows, np.zeros(2), begins=np.ones(2, np.bool_))[0])
        assert (found[0][0] == found[1][0]) == nothing[0]
        assert found[0][1] == found[1][1]


def test_the_critic_of_the_second_stream_learns_its_returns():
    """Episodes of one decision that always come to the same place: as new as ever, so each earns the same, and V = r / (1 - γ)."""
    config = RND(
        hidden=(16,), features=3, gamma=0.5, critic_learning_rate=0.01, critic_epochs=20, normalise_observations=False
    )
    learned = reward_of(config, alone())
    learned._novelty.learn = lambda *_: {}
    learned._returns.add = lambda *_: None  # a scale of 1
    observation = np.ones((32, 2), np.float32)
    rows = rows_of(observation, np.zeros(32, np.int32), lengths=[1] * 32, tail=[0] * 32, bootstrap=observation)
    for _ in range(20):
        learned.of(rows, np.zeros(32))
    reward = learned.metrics["learned_reward"]
    value = float(learned._stream._values(torch.ones(1, 2)).detach())
    assert value == pytest.approx(reward / (1 - 0.5), rel=0.02)
    assert reward > 0.1


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sums():
    """Novelty 1 and 3 in one episode, γ = 0.5: sums 1 and 3.5, whose variance is 1.5625, so that 1 becomes 0.8 and 3 becomes 2.4."""
    learned = reward_of(RND(gamma=0.5, streams="one", extrinsic=2.0, coefficient=10.0), alone())
    learned._novelty.errors = lambda _: np.array([1.0, 3.0])
    rows = rows_of(np.zeros((2, 2), np.float32), np.zeros(2, np.int32), lengths=[2], tail=[0])
    found = learned.of(rows, np.array([5.0, 7.0]))
    np.testing.assert_allclose(found.reward, [10 + 8, 14 + 24], rtol=1e-6)
    assert found.advantage is None
    assert learned.metrics["learned_reward"] == pytest.approx(1.6)
    assert learned.metrics["game_reward"] == pytest.approx(6.0)


def test_rows_that_nobody_played_are_paid_and_do_not_count():
    """Hindsight's copies of the two decisions of above, each a segment of its own that goes on: nothing else would be different."""
    learned = reward_of(RND(gamma=0.5, streams="one"), alone(), replayed=True)
    learned._novelty.errors = lambda steps: np.array([1.0, 3.0, 9.0, 9.0])[: len(steps)]
    seen = np.array([[0, 0], [2, 0], [8, 8], [8, 8]], np.float32)
    rows = rows_of(
        seen, np.zeros(4, np.int32), lengths=[2, 1, 1], tail=[0, 2, 2], bootstrap=seen[[0, 2, 3]], episode=[5, 5, 5]
    )
    rows = replace(rows, added=np.array([False, True, True]))
    found = learned.of(rows, np.array([5.0, 7.0, 0.0, 0.0]))
    np.testing.assert_allclose(found.reward, [5 + 0.8, 7 + 2.4, 7.2, 7.2], rtol=1e-6)
    assert learned.metrics["learned_reward"] == pytest.approx(1.6)
    assert learned.metrics["game_reward"] == pytest.approx(6.0)
    assert learned._observations.moments.mean.tolist() == [1.0, 0.0]
    assert len(learned.state_dict()["returns"]["open"]) == 0


# ------------------------------------------------------------------ random network distillation


def test_distillation_error():
    """((1 - 0)² + (2 - 4)²) / 2 and 0."""
    found = distillation_error(torch.tensor([[1.0, 2.0], [3.0, 3.0]]), torch.tensor([[0.0, 4.0], [3.0, 3.0]]))
    assert found.tolist() == [2.5, 0.0]


@pytest.mark.slow
def test_visited_states_have_lower_novelty():
    """Of eight places four are visited, one of them far more often than the others."""
    env = alone(observation=Box(0, 1, (8,), np.float32))
    learned = reward_of(RND(hidden=(32,), features=8, normalise_observations=False, batch=32), env)
    every = np.eye(8, dtype=np.float32)
    visited = every[[0] * 29 + [1, 2, 3]]
    rows = rows_of(visited, np.zeros(32, np.int32), lengths=[1] * 32, tail=[0] * 32, bootstrap=visited)
    probe = Steps.of(
        rows_of(every, np.zeros(8, np.int32), lengths=[1] * 8, tail=[0] * 8, bootstrap=every), enumerated=False
    )
    before = learned._novelty.errors(probe)
    for _ in range(100):
        learned.of(rows, np.zeros(32))
    after = learned._novelty.errors(probe)
    assert (after[:4] < 0.2 * before[:4]).all()
    assert after[0] < after[1:4].min()
    assert after[4:].min() > 3 * after[1:4].max()


def test_nothing_is_new_where_nothing_is_known(enumerated):
    """Behind the end of an enumerated game there is no observation."""
    learned = reward_of(RND(hidden=(4,), features=3), enumerated)
    rows = rows_of(np.array([3, 4], np.int32), np.zeros(2, np.int32), lengths=[2], tail=[0], bootstrap=[-1])
    error = learned._novelty.errors(Steps.of(rows, enumerated=True))
    assert error[0] > 0
    assert error[1] == 0.0
    assert learned._learned_from(rows, Steps.of(rows, enumerated=True)).tolist() == [0]


def test_only_a_share_is_learned_from_and_only_what_was_played():
    learned = reward_of(RND(hidden=(4,), features=3, share=0.25), alone())
    rows = rows_of(np.zeros((40, 2), np.float32), np.zeros(40, np.int32), lengths=[20, 20], tail=[0, 0])
    steps = Steps.of(rows, enumerated=False)
    assert len(learned._learned_from(rows, steps)) == 10
    which = learned._learned_from(replace(rows, added=np.array([False, True])), steps)
    assert len(which) == 5
    assert which.max() < 20


def test_observations_that_are_no_numbers_are_refused():
    learned = reward_of(RND(hidden=(4,), features=3), alone())
    rows = rows_of(np.full((2, 2), np.nan, np.float32), np.zeros(2, np.int32), lengths=[2], tail=[0])
    with pytest.raises(TrainingError, match="an observation is NaN"):
        learned.of(rows, np.zeros(2))
    assert learned._observations.moments.count == 0


# ------------------------------------------------------------------ the intrinsic curiosity module


def test_losses_of_the_curiosity_module():
    """½ ((1 - 0)² + (2 - 4)²) = 2.5; 0.8 × 0.5 + 0.2 × 2.5 = 0.9."""
    assert forward_error(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).tolist() == [2.5]
    assert module_loss(torch.tensor(0.5), torch.tensor(2.5), forward_share=0.2) == pytest.approx(0.9)


def test_a_linear_module_beside_numpy():
    """Without hidden layers φ, the forward and the inverse model are linear; the second action is illegal in the first row."""
    env = alone()
    config = ICM(hidden=(), features=2, normalise_observations=False, learning_rate=1e-9, batch=8)
    placed = Observations(env, (0,), what="icm", normalise=False, device=torch.device("cpu"))
    module = CuriosityModule(config, context_of(env), HERE, placed)
    rng = np.random.default_rng(0)
    seen, action = rng.standard_normal((3, 2)).astype(np.float32), np.array([0, 1, 1], np.int32)
    mask = np.array([[True, False], [True, True], [True, True]])
    end = rng.standard_normal((1, 2)).astype(np.float32)
    rows = rows_of(seen, action, lengths=[3], tail=[0], bootstrap=end, mask=mask)
    named = {name: array.astype(np.float64) for name, array in module.state_dict()["weights"].items()}
    (w, b), (fw, fb), (iw, ib) = (
        (named[f"{part}.{key}.weight"], named[f"{part}.{key}.bias"])
        for part, key in (("features", 1), ("forward_model", 1), ("inverse_model", 1))
    )
    errors, surprises = [], []
    for k, (now, after) in enumerate(zip(seen, [*seen[1:], end[0]], strict=True)):
        phi, then = w @ now + b, w @ after + b
        guess = fw @ np.concatenate([phi, np.eye(2)[action[k]]]) + fb
        errors.append(0.5 * ((guess - then) ** 2).sum())
        out = np.where(mask[k], iw @ np.concatenate([phi, then]) + ib, -np.inf)
        surprises.append(np.log(np.exp(out).sum()) - out[action[k]])
    steps = Steps.of(rows, enumerated=False)
    np.testing.assert_allclose(module.errors(steps), errors, rtol=1e-5)
    told = module.learn(steps, np.arange(3))
    assert told["forward_loss"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert told["inverse_loss"] == pytest.approx(np.mean(surprises), rel=1e-5)
    assert surprises[0] == pytest.approx(0.0, abs=1e-12)  # one legal action is no surprise


def test_the_features_tell_what_was_done_and_what_comes_of_it():
    """The first number moves by what is done (-1 or 1), the second as it likes: after learning the inverse model knows the action."""
    env = alone(action=Box(-1.0, 1.0, (1,), np.float32))
    config = ICM(hidden=(16,), features=2, learning_rate=0.01, epochs=5, batch=64, streams="one")
    learned, rng = reward_of(config, env), np.random.default_rng(0)
    told = []
    for _ in range(25):
        action = rng.choice([-1.0, 1.0], (64, 1)).astype(np.float32)
        seen = rng.standard_normal((64, 2)).astype(np.float32)
        after = np.stack([seen[:, 0] + action[:, 0], rng.standard_normal(64)], axis=1).astype(np.float32)
        learned.of(rows_of(seen, action, lengths=[1] * 64, tail=[1] * 64, bootstrap=after), np.zeros(64))
        told.append(learned.metrics["inverse_loss"])
    assert told[0] > 0.3
    assert told[-1] < 0.05


@pytest.mark.parametrize("streams", ["one", "two"])
def test_a_rollout_whose_decisions_are_all_the_last(streams, enumerated):
    """Nothing is known of what comes after any of them: it is paid nothing, and neither models nor normalisers learn."""
    learned = reward_of(ICM(hidden=(4,), features=3, streams=streams, share=0.5), enumerated)
    weights = {name: array.copy() for name, array in learned._novelty.state_dict()["weights"].items()}
    rows = rows_of(
        np.arange(3, dtype=np.int32), np.zeros(3, np.int32), lengths=[1] * 3, tail=[0] * 3, bootstrap=[-1] * 3
    )
    for _ in range(2):
        found = learned.of(rows, np.array([1.0, 2.0, 6.0]))
        np.testing.assert_array_equal(found.reward, [1.0, 2.0, 6.0])
        assert np.isfinite(found.advantage if streams == "two" else 0.0).all()
        assert learned.metrics["game_reward"] == 3.0
        assert learned.metrics["learned_reward"] == 0.0
        assert "forward_loss" not in learned.metrics
    for name, array in learned._novelty.state_dict()["weights"].items():
        np.testing.assert_array_equal(array, weights[name])
    assert learned._observations.moments.count == 0
    more = rows_of(np.arange(4, dtype=np.int32), np.zeros(4, np.int32), lengths=[4], tail=[0], bootstrap=[-1])
    found = learned.of(more, np.zeros(4))
    assert np.isfinite(found.reward).all()
    assert {"forward_loss", "inverse_loss"} <= learned.metrics.keys()


@pytest.mark.parametrize(
    ("action", "shape", "width"),
    [
        (Discrete(3), (), 3),
        (MultiDiscrete([2, 3]), (2,), 5),
        (Box(-1.0, 1.0, (2, 2), np.float32), (2, 2), 4),
    ],
    ids=["discrete", "several", "box"],
)
def test_no_actions_are_no_numbers(action, shape, width):
    actions = Actions(alone(action=action), (0,), what="icm", device=torch.device("cpu"))
    assert actions.numbers(np.zeros((0, *shape), action.dtype)).shape == (0, width)
    assert actions.numbers(np.zeros((2, *shape), action.dtype)).shape == (2, width)


# ------------------------------------------------------------------ where learners use it


def test_the_second_stream_reaches_the_policy(tensors):
    """The same rollout, without rewards of the game: advantages are the intrinsic ones alone."""
    options = {
        "batch": 40,
        "hidden": (8,),
        "learned_reward": {"kind": "rnd", "hidden": (8,), "coefficient": 3.0, "extrinsic": 0.0},
    }
    learner = PPO(**options).learner(context_of(tensors))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=12, rng=np.random.default_rng(3))
    twin = PPO(**options).learner(context_of(tensors))._items.learned_reward
    ((_, columns),) = learner.items(rows)
    expected = twin.of(rows, np.zeros(rows.num_rows)).advantage
    np.testing.assert_allclose(columns["advantage"], expected, rtol=1e-5)
    assert np.abs(expected).max() > 0.1
    assert {"game_reward", "learned_reward", "predictor_loss", "intrinsic_value_loss"} <= learner._items.metrics.keys()
