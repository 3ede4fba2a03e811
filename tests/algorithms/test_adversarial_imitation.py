"""GAIL and AIRL: discriminators and rewards by hand, and what is learned from a file of decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from reward_tools import alone, context_of, rows_of
from test_behaviour_cloning import THREE, made_up

from ludus.algorithms.common.registry import check_fits
from ludus.algorithms.on_policy.config import A2C, OnPolicy
from ludus.algorithms.ppo.config import PPO
from ludus.backend.device import Placement
from ludus.contrib.algorithms.imitation.config import AIRL, GAIL
from ludus.contrib.algorithms.imitation.discriminator import (
    Compared,
    PlainDiscriminator,
    ShapedDiscriminator,
    absorbing_state_return,
    discriminator_loss,
    gail_reward,
    penalty,
    shaped,
)
from ludus.contrib.algorithms.imitation.expert import steps_in
from ludus.core.errors import ConfigError, DataError
from ludus.core.types import SegmentEnd
from ludus.envs.config import Environment
from ludus.policies.registry import build_policy
from ludus.replay.parquet import Recorded, TrajectoryFile, TrajectoryOrigin, read_trajectories
from ludus.replay.trajectories import select
from ludus.runs.scenario_files import load_scenario
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

HERE = Placement("cpu", written=False, precision="float32", why="a test")


def written(path, recorded):
    with TrajectoryFile(path, recorded.origin) as file:
        for piece in recorded.trajectories:
            file.write(piece)
    return str(path)


def compared(observation, action, after=None, *, absorbing=0.0, over=0.0, logp=0.0):
    x, a = torch.tensor(observation), torch.tensor(action)
    y = torch.zeros_like(x) if after is None else torch.tensor(after)
    return Compared(
        x, a, *(torch.full((len(x),), absorbing), y, torch.full((len(x),), over), torch.full((len(x),), logp))
    )


# ------------------------------------------------------------------ losses and rewards


def test_discriminator_loss():
    """Logits 0 and log 3 of the file, -log 3 of the policy: -(log ½ + log ¾) / 2 - log ¾."""
    found = discriminator_loss(torch.tensor([0.0, np.log(3)]), torch.tensor([-np.log(3)]))
    assert float(found) == pytest.approx(-(np.log(1 / 2) + np.log(3 / 4)) / 2 - np.log(3 / 4))


@pytest.mark.parametrize(
    ("form", "expected"), [("positive", np.log(4)), ("negative", np.log(3 / 4)), ("logit", np.log(3))]
)
def test_rewards_of_gail(form, expected):
    """D = ¾."""
    assert float(gail_reward(torch.tensor(np.log(3)), form=form)) == pytest.approx(expected)


def test_shaping_is_a_difference_of_potentials():
    """1 + 0.5 × 6 - 2."""
    assert shaped(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([6.0]), gamma=0.5).tolist() == [2.0]


def test_a_linear_discriminator_and_its_penalty():
    """f = w·(s, a) + b has the slope w everywhere; divided by its norm it costs nothing."""
    config = GAIL(demonstrations="none", hidden=())
    module = PlainDiscriminator(config, (2,), 2)
    layer = module.judge.perceptron[-1]
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, -2.0, 4.0]]))
        layer.bias.fill_(0.5)
    expert, policy = compared([[1.0, 1.0]], [[0.0, 1.0]]), compared([[0.0, 3.0]], [[1.0, 0.0]])
    assert module(expert).tolist() == [7.5]
    assert module(policy).tolist() == [4.5]
    assert penalty(module, expert, policy, torch.tensor([0.3])).tolist() == [16.0]
    normed = PlainDiscriminator(config.model_copy(update={"spectral": True}), (2,), 2)
    for _ in range(30):
        normed(expert)
    assert penalty(normed, expert, policy, torch.tensor([0.3])).tolist() == pytest.approx([0.0], abs=1e-6)


def test_the_penalty_of_airl_is_of_both_observations():
    """f = w·s + 0.5 h(s') - h(s), h = v·s: slopes w - v and 0.5 v."""
    module = ShapedDiscriminator(AIRL(demonstrations="none", hidden=(), actions=False), (2,), 2, gamma=0.5)
    with torch.no_grad():
        module.g.perceptron[-1].weight.copy_(torch.tensor([[1.0, 3.0]]))
        module.h.perceptron[-1].weight.copy_(torch.tensor([[2.0, -4.0]]))
    rows = compared([[1.0, 1.0]], [[0.0, 1.0]], [[0.5, 0.5]])
    assert module(rows).tolist() == [4.0 + 0.5 * -1.0 - -2.0]
    expected = (np.sqrt(1 + 49 + 1 + 4) - 1) ** 2
    assert penalty(module, rows, rows, torch.tensor([0.5])).tolist() == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(("form", "expected"), [("difference", 5.0), ("shaped", 3.0), ("unshaped", 2.0)])
def test_rewards_of_airl(tmp_path, form, expected):
    """g = 2 and h(s) = -1, whence f = 3 at an end; log π = -2."""
    config = AIRL(demonstrations=expert_file(tmp_path), hidden=(), form=form, normalise_observations=False)
    learned = config.build(context_of(THREE), HERE, replayed=False, gamma=0.9)
    with torch.no_grad():
        for judge, bias in ((learned.module.g, 2.0), (learned.module.h, -1.0)):
            judge.perceptron[-1].weight.zero_()
            judge.perceptron[-1].bias.fill_(bias)
    rows = compared([[0.1, 0.2]], [[0.0, 1.0, 0.0]], over=1.0, logp=-2.0)
    assert learned.rewards(rows).tolist() == [expected]
    assert learned.logits(rows).tolist() == [5.0]


# ------------------------------------------------------------------ behind an end


def test_an_end_is_paid_for_all_the_time_to_come():
    """0.9 × 2 + 0.81 × 2 + …"""
    assert absorbing_state_return(np.array([2.0]), gamma=0.9).tolist() == pytest.approx([18.0])


def test_the_absorbing_state_shows_nothing_else():
    """g = (1, 2)·s + (3, 0)·a + 4 there - 1, h = (2, 0)·s + 6 there: f = 1 + 2 + 3 - 1 + 0.5 × 6 - 2 before it, 4 - 1 + 0.5 × 6 - 6 in
    it."""
    module = ShapedDiscriminator(AIRL(demonstrations="none", hidden=(), absorbing=True), (2,), 2, gamma=0.5)
    with torch.no_grad():
        module.g.perceptron[-1].weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 0.0, 4.0]]))
        module.g.perceptron[-1].bias.fill_(-1.0)
        module.h.perceptron[-1].weight.copy_(torch.tensor([[2.0, 0.0, 6.0]]))
    before = compared([[1.0, 1.0]], [[1.0, 0.0]], [[9.0, 9.0]], over=1.0)
    there = compared([[7.0, 1.0]], [[1.0, 0.0]], [[9.0, 9.0]], absorbing=1.0, over=1.0)
    assert module(before).tolist() == [6.0]
    assert module(there).tolist() == [0.0]
    # Half of the way, g's slopes are those of half a state: (0.5, 1), (1.5, 0), and 4 - (1, 2)·(4, 1) - 3 × 1; h's likewise.
    slopes = [0.5 - 1.0, 1.0, 1.5, 0.0, -5.0 - (6.0 - 8.0), 0.0, 0.0, 0.5 * (6.0 - 18.0)]
    found = penalty(module, before, there, torch.tensor([0.5]))
    assert found.tolist() == pytest.approx([(np.linalg.norm(slopes) - 1) ** 2], rel=1e-5)


@pytest.mark.parametrize("kind", [GAIL, AIRL])
def test_whoever_ends_as_the_expert_does_is_paid_for_it(tmp_path, kind):
    """One and the same action everywhere: only whether episodes terminate tells both sides apart. What is judged behind an end is worth
    γ / (1 - γ) = 4 times to the decision that ended."""
    seen = np.random.default_rng(1).uniform(-1, 1, (90, 2)).astype(np.float32)
    action = np.ones(90, np.int32)
    rows = rows_of(seen, action, lengths=[3] * 30, tail=[SegmentEnd.TERMINATED] * 30, bootstrap=seen[2::3])
    rows = replace(rows, logp=np.full(90, -np.log(3), np.float32))
    paid = []
    for tail in (SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED):
        path = written(tmp_path / "e.parquet", made_up(seen, action, length=3, tail=tail))
        config = kind(demonstrations=path, hidden=(16,), learning_rate=0.01, epochs=2, batch=30, absorbing=True)
        learned = config.build(context_of(THREE), HERE, replayed=False, gamma=0.8)
        for _ in range(8):
            found = learned.of(rows, np.zeros(90), lambda observation, *_: np.full(len(observation), -np.log(3)))
        last = found.reward.reshape(30, 3)[:, 2]
        paid.append(float(last.mean() - found.reward.reshape(30, 3)[:, :2].mean()))
    assert paid[0] > paid[1] + 1.0


@pytest.mark.parametrize("absorbing", [False, True])
def test_unknown_ends_are_not_terminations(absorbing, enumerated, tmp_path):
    """Two episodes of a game with ids, one of which terminates; the other is cut where its player sees nothing. With g = 0, h = 3 wherever
    it looks and 5 more in the absorbing state, f is 0.5 h(s') - h(s): behind the cut as in between, behind the end 0 or 8 counts."""
    given = {"demonstrations": recorded_in(enumerated, tmp_path), "hidden": (), "form": "shaped", "learning_rate": 1e-9}
    config = AIRL(absorbing=absorbing, normalise_observations=False, **given)
    learned = config.build(context_of(enumerated), HERE, replayed=False, gamma=0.5)
    with torch.no_grad():
        for judge, bias, there in ((learned.module.g, 0.0, 0.0), (learned.module.h, 3.0, 5.0)):
            judge.perceptron[-1].weight.zero_()
            judge.perceptron[-1].bias.fill_(bias)
            if absorbing:
                judge.perceptron[-1].weight[0, -1] = there
    seen = np.array([0, 1, 0, 1], np.int32)
    tail = [SegmentEnd.TERMINATED, SegmentEnd.CUT]
    rows = rows_of(seen, np.zeros(4, np.int32), lengths=[2, 2], tail=tail, bootstrap=np.array([-1, -1], np.int32))
    found = learned.of(rows, np.zeros(4), lambda observation, *_: np.zeros(len(observation))).reward
    end = (
        0.5 * 8.0 - 3.0 + (0.5 * 8.0 - 8.0) if absorbing else -3.0
    )  # and γ / (1 - γ) = 1 times f in the absorbing state
    np.testing.assert_allclose(found, [-1.5, end, -1.5, -1.5], atol=1e-5)


@pytest.mark.parametrize("algorithm", [PPO, OnPolicy])
def test_no_discount_and_an_absorbing_state_are_refused(algorithm):
    """By algorithms of one's own, too."""
    with pytest.raises(ConfigError, match="which gamma 1 does not bound"):
        algorithm(gamma=1.0, learned_reward={"kind": "gail", "demonstrations": "x", "absorbing": True})


# ------------------------------------------------------------------ the file


def expert_file(folder, *, rows=60, action=1, length=3):
    """Decisions of an expert who always does the same."""
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    return written(folder / "expert.parquet", made_up(seen, np.full(rows, action, np.int32), length=length))


def test_the_first_episodes_and_what_came_after_their_decisions():
    seen = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
    recorded = made_up(seen, np.array([0, 1, 2, 1], np.int32), length=2)
    steps = steps_in(recorded, THREE, (0,), episodes=1)
    assert steps.action.tolist() == [0, 1]
    np.testing.assert_array_equal(
        steps.after, seen[[1, 1]]
    )  # where it is made up so that the last observation comes again
    assert steps.ended.tolist() == [False, True]
    with pytest.raises(ConfigError, match="it has 2 episodes of these players, and 3 are asked for"):
        steps_in(recorded, THREE, (0,), episodes=3)


PAIR = replace(
    THREE,
    agents=tuple(replace(THREE.agents[0], player=player) for player in range(2)),
    utility_range=((-1.0, 1.0),) * 2,
    symmetry=((0, 1),),
)


def of_two(*pieces):
    """Episodes of one decision each: (policy, player, number) and what was seen there, the place in this list."""
    names = list(dict.fromkeys(name for name, _, _ in pieces))
    seen = np.arange(2 * len(pieces), dtype=np.float32).reshape(-1, 2) / 64
    whole = made_up(seen, np.arange(len(pieces), dtype=np.int32) % 3)
    (all_of_it,) = whole.trajectories
    seat, episode = (np.array([piece[k] for piece in pieces]) for k in (1, 2))
    all_of_it = replace(all_of_it, seat=seat.astype(np.int8), episode=episode)
    found = [
        select(all_of_it, np.array([k for k, piece in enumerate(pieces) if piece[0] == name]), policy=name)
        for name in names
    ]
    return Recorded(replace(whole.origin, players=2, seats=(0, 1)), tuple(found))


def taken(recorded, **given):
    """Which of `of_two`, in rising order."""
    return sorted((32 * steps_in(recorded, PAIR, (0, 1), **given).observation[:, 0]).astype(int).tolist())


def test_a_few_episodes_of_what_was_mixed_are_of_all_players_and_policies():
    """Player 0 has the episodes 0 to 3, of old and then of new; player 1 those from 4 on."""
    mixed = of_two(
        *[(name, p, 4 * p + 2 * k + i) for p in (0, 1) for k, name in enumerate(["old", "new"]) for i in (0, 1)]
    )
    assert taken(mixed) == list(range(8))
    assert taken(mixed, episodes=2) == [0, 4]
    assert taken(mixed, episodes=4) == [0, 2, 4, 6]
    assert taken(mixed, episodes=5) == [0, 1, 2, 4, 6]
    assert taken(mixed, episodes=2, policies=["new"]) == [2, 6]
    with pytest.raises(ConfigError, match=r"first 1 episodes have no decisions of players \[1\]"):
        taken(mixed, episodes=1)


def test_episodes_that_players_share_are_taken_as_they_are_numbered():
    """Though player 1 decides nothing in the first of them."""
    shared = of_two(("a", 0, 0), ("a", 0, 1), ("b", 1, 1), ("a", 0, 2), ("b", 1, 2))
    assert taken(shared, episodes=2) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"no decisions of players \[1\] by a, .* or name policies that play them"):
        taken(shared, policies=["a"])


def test_a_file_of_other_players_another_environment_or_none_is_refused(tmp_path):
    recorded = made_up(np.zeros((2, 2), np.float32), np.zeros(2, np.int32))
    with pytest.raises(ConfigError, match=r"decisions of players \[0\], and the policy plays \[1\]"):
        steps_in(recorded, THREE, (1,))
    with pytest.raises(ConfigError, match=r"the policy plays \[0, 1\]; record those of \[1\] too"):
        steps_in(recorded, THREE, (0, 1))
    elsewhere = Recorded(replace(recorded.origin, env="tests/elsewhere"), recorded.trajectories)
    path = written(tmp_path / "elsewhere.parquet", elsewhere)
    with pytest.raises(
        ConfigError, match=r"learned_reward\.demonstrations .*elsewhere\.parquet.*: the trajectories are of"
    ):
        check_fits(PPO(learned_reward={"kind": "gail", "demonstrations": path}), THREE, (0,))
    with pytest.raises(DataError, match="holds no trajectories that can be read"):
        check_fits(PPO(learned_reward={"kind": "airl", "demonstrations": str(tmp_path / "none")}), THREE, (0,))


def test_a_file_that_was_recorded_with_other_wrappers_is_refused(tmp_path, cartpole_file):
    """Where agents may have seen something else, though the spaces are the same."""
    recorded, name = read_trajectories(cartpole_file), "gymnasium/CartPole-v1"

    def given(*wrappers):
        settings = Environment(id=name, wrappers=wrappers).model_dump(mode="json")
        origin = replace(recorded.origin, notes={"environment": settings})
        path = written(tmp_path / "other.parquet", Recorded(origin, recorded.trajectories))
        scenario = load_scenario("cartpole-gail", [f"algorithm.learned_reward.demonstrations={path}"])
        scenario.check(scenario.env.make(num_envs=1).spec)

    given("clip_reward")  # which no player sees
    with pytest.raises(ConfigError, match=r"learned_reward\.demonstrations .*other\.parquet': .* with env\.wrappers="):
        given({"kind": "frame_stack", "k": 1})


def test_a_learner_does_not_go_on_with_another_file(tmp_path):
    algorithm = PPO(
        hidden=(4,), learned_reward={"kind": "gail", "hidden": (4,), "demonstrations": expert_file(tmp_path)}
    )
    state = algorithm.learner(context_of(THREE)).state_dict()
    expert_file(tmp_path, action=2)
    with pytest.raises(ConfigError, match="has other decisions than when this learner was saved"):
        algorithm.learner(context_of(THREE)).load_state_dict(state)


# ------------------------------------------------------------------ learning


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "more"), [("gail", {}), ("airl", {"gradient_penalty": 1.0, "spectral": True})])
def test_expert_actions_earn_more(tmp_path, kind, more):
    """Against a policy of uniform actions, whose log-probabilities are log ⅓."""
    options = {"hidden": (16,), "learning_rate": 0.01, "epochs": 2, "batch": 30, **more}
    config = {"gail": GAIL, "airl": AIRL}[kind](demonstrations=expert_file(tmp_path), **options)
    learned, rng = config.build(context_of(THREE), HERE, replayed=False, gamma=0.9), np.random.default_rng(1)
    for _ in range(20):
        seen, action = rng.uniform(-1, 1, (90, 2)).astype(np.float32), np.arange(90, dtype=np.int32) % 3
        rows = rows_of(seen, action, lengths=[3] * 30, tail=[0] * 30, bootstrap=seen[2::3])
        rows = replace(rows, logp=np.full(90, -np.log(3), np.float32))
        found = learned.of(rows, np.full(90, 7.0), lambda observation, *_: np.full(len(observation), -np.log(3)))
    earned = [found.reward[action == k].mean() for k in range(3)]
    assert earned[1] > max(earned[0], earned[2]) + 0.3
    told = learned.metrics
    assert told["game_reward"] == 7.0
    assert told["learned_reward"] == pytest.approx(found.reward.mean())
    assert told["expert_accuracy"] > 0.9
    assert told["policy_accuracy"] > 0.6  # a third of its actions are the expert's


def recorded_in(env, folder, *, segments=30):
    """What a fresh policy decided in a made-up environment."""
    learner = PPO(hidden=(4,)).learner(context_of(env))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=np.random.default_rng(3))
    agent = env.agents[0]
    origin = TrajectoryOrigin(env.id, env.num_players, (0,), agent.observation, agent.action)
    return written(folder / "recorded.parquet", Recorded(origin, (replace(rows, memory0=None),)))


SMALL = {"hidden": (8,), "batch": 32, "epochs": 2}
CASES = {
    "gail": ("enumerated", PPO(batch=40, epochs=2, hidden=(8,)), {"kind": "gail", "gradient_penalty": 1.0}),
    "airl": ("enumerated", PPO(batch=40, epochs=2, hidden=(8,)), {"kind": "airl"}),
    "gail with memory": (
        "tensors",
        PPO(batch=40, epochs=1, hidden=(8,), memory="gru", memory_size=4),
        {"kind": "gail", "spectral": True},
    ),
    "airl, absorbing": (
        "enumerated",
        PPO(batch=40, epochs=2, hidden=(8,), gamma=0.9),
        {"kind": "airl", "absorbing": True},
    ),
    "airl by density": (
        Box(-1.0, 3.0, (2, 1), np.float32),
        A2C(batch=40, hidden=(8,)),
        {"kind": "airl", "gradient_penalty": 1.0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_adversarial_imitation_satisfies_algorithm_contract(name, request, tmp_path):
    """Resume to the bit and the rest; a game whose rewards are NaN is refused even where they do not count."""
    kind, algorithm, options = CASES[name]
    env = request.getfixturevalue(kind) if isinstance(kind, str) else alone(action=kind)
    learned = {"demonstrations": recorded_in(env, tmp_path), **SMALL, **options}
    check_algorithm(type(algorithm)(**{**algorithm.model_dump(), "learned_reward": learned}), env, rounds=2)


def test_images_are_judged_as_images(tmp_path):
    env = alone(observation=Box(0, 255, (1, 36, 36), np.uint8), action=Discrete(3))
    rng = np.random.default_rng(0)
    seen, action = rng.integers(0, 255, (6, 1, 36, 36), dtype=np.uint8), np.arange(6, dtype=np.int32) % 3
    rows = rows_of(seen, action, lengths=[3, 3], tail=[0, 1], bootstrap=seen[:2])
    origin = TrajectoryOrigin(env.id, 1, (0,), env.agents[0].observation, env.agents[0].action)
    path = written(tmp_path / "images.parquet", Recorded(origin, (rows,)))
    for config in (GAIL(demonstrations=path, network="nature", normalise_observations=False, gradient_penalty=1.0),
                   AIRL(demonstrations=path, network="nature", normalise_observations=False)):  # fmt: skip
        learned = config.build(context_of(env), HERE, replayed=False, gamma=0.9)
        found = learned.of(rows, np.zeros(6), lambda observation, *_: np.zeros(len(observation)))
        assert found.reward.shape == (6,)
        assert np.isfinite(found.reward).all()
