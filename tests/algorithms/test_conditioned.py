"""One network for several rows: the contract, plain learning of what it is told, and that rows learn different things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box
from team_games import team_env

from ludus.algorithms.common.base import Algorithm, Learner, LearnerContext
from ludus.algorithms.common.delegating import Conditioned
from ludus.algorithms.common.registry import check_fits
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.contrib.algorithms.mat.config import MAT
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, condition_mode
from ludus.policies.registry import build_policy
from ludus.policies.specs import part_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

TWO = np.array([[1.0, 0.0], [0.25, 0.75]], np.float32)


class InRow:
    """A learner's newest policy, which explores in one of its rows."""

    memory_shape = None
    takes_ids = False

    def __init__(self, learner: Learner, row: int) -> None:
        self._policy, self._mode = build_policy(learner.spec, learner.weights()), condition_mode(row)
        self.spec, self.noise_width = self._policy.spec, self._policy.noise_width

    def act(self, *args, **options):
        return self._policy.act(*args, **{**options, "mode": self._mode})


def rollout(learner: Learner, env: EnvSpec, row: int, number: int, segments: int = 40) -> Trajectories:
    rng = np.random.default_rng([number, row])
    return synthetic_rollout(env, InRow(learner, row), seats=(1,), segments=segments, rng=rng)


def together(some: list[ItemColumns]) -> Sample:
    columns = {name: np.concatenate([items[name] for items in some]) for name in some[0]}
    rows = len(columns["action"])
    return Sample(columns, np.arange(rows), np.ones(rows))


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        (PPO(hidden=(4,), batch=40, epochs=1), "enumerated"),
        (A2C(hidden=(4,), batch=40, batch_unit="episodes"), "tensors"),
    ],
    ids=["ppo", "a2c"],
)
def test_conditioned_learners_satisfy_algorithm_contract(
    algorithm: Algorithm, kind: str, request: pytest.FixtureRequest
) -> None:
    """Every rollout brings the last row, so that one row is all there are."""
    check_algorithm(Conditioned(algorithm, TWO[:1]), request.getfixturevalue(kind), seats=(1,), rounds=2)


def test_nothing_is_learned_before_all_rows_have_come(tensors: EnvSpec) -> None:
    context = LearnerContext(tensors, (1,), 0)
    learner = Conditioned(PPO(hidden=(4,), batch=40), TWO).learner(context)
    learner.items(rollout(learner, tensors, 1, 0))
    assert not learner.batches()
    learner.items(rollout(learner, tensors, 1, 1))
    assert not learner.batches()
    state = learner.state_dict()
    for again in (learner, Conditioned(PPO(hidden=(4,), batch=40), TWO).learner(context)):
        again.load_state_dict(state)
        again.items(rollout(again, tensors, 0, 2))
        assert len(again.batches()) == 1
        assert not again.batches()
    more = Conditioned(PPO(hidden=(4,), batch=40), np.zeros((3, 2), np.float32)).learner(context)
    more.load_state_dict(state)  # goes on with another number of rows
    more.items(rollout(more, tensors, 1, 0))
    assert not more.batches()


def test_it_is_the_algorithm_in_a_game_that_shows_the_condition(tensors: EnvSpec) -> None:
    """To the bit what PPO learns where conditions are part of the observations."""
    ppo, context = PPO(hidden=(4,), batch=40, epochs=2), LearnerContext(tensors, (1,), 0, total=200)
    wide = Box(-np.inf, np.inf, (6,), np.float32)
    shown = replace(tensors, agents=tuple(replace(agent, observation=wide) for agent in tensors.agents))
    learner, plain = Conditioned(ppo, TWO).learner(context), ppo.learner(replace(context, env=shown))
    for number in range(2):
        mine, theirs = [], []
        for row in range(2):
            rows = rollout(learner, tensors, row, number)
            behind = {
                name: np.concatenate([seen, np.tile(TWO[row], (len(seen), 1))], axis=1)
                for name in ("observation", "bootstrap_observation")
                for seen in [getattr(rows, name)]
            }
            mine.append(learner.items(rows)[0][1])
            theirs.append(plain.items(replace(rows, **behind))[0][1])
        learner.update(together(mine))
        plain.update(together(theirs))
    for name, array in part_of(learner.weights(), "network").items():
        np.testing.assert_array_equal(array, plain.weights()[name])


def test_rows_learn_different_things(enumerated: EnvSpec) -> None:
    """Row k is paid for action k where that is legal; everything else is the same."""
    assert enumerated.enumeration is not None
    ppo = PPO(hidden=(32,), batch=40, entropy=0.02, learning_rate=0.02, normalise_advantages=False)
    learner = Conditioned(ppo, np.eye(2, dtype=np.float32)).learner(LearnerContext(enumerated, (1,), 0))
    for number in range(25):
        some = []
        for row in range(2):
            rows = rollout(learner, enumerated, row, number)
            paid = replace(rows, reward=(rows.action == row).astype(np.float32), tail=np.zeros_like(rows.tail))
            some.append(learner.items(paid)[0][1])
        learner.update(together(some))
    policy, legal = build_policy(learner.spec, learner.weights()), enumerated.enumeration.mask[8:]
    for row in range(2):
        table = policy.tabulate(enumerated.enumeration, 1, mode=condition_mode(row))
        assert table is not None
        assert table[legal[:, row], row].mean() > 0.8
    assert legal[:, 1].sum() >= 2


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (PPO(batch_unit="decisions"), "PPO collects decisions"),
        (NFSP(), "NFSP plays in modes of its own"),
        (DQN(rollout_unit="episodes"), "DQN replays .* Use an on-policy algorithm"),
    ],
    ids=["decisions", "modes", "replay"],
)
def test_conditioned_learner_rejects_unsupported_algorithms(
    algorithm: Algorithm, message: str, tensors: EnvSpec
) -> None:
    with pytest.raises(ScenarioError, match=message):
        Conditioned(algorithm, TWO).check(tensors, (1,))


@pytest.mark.parametrize("kind", ["gail", "airl"])
def test_a_reward_that_is_learned_from_a_file_is_refused(kind: str, tensors: EnvSpec) -> None:
    """No file is read for that: there is none."""
    with pytest.raises(ScenarioError, match=f"{kind.upper()} compares decisions with those of a file.* sees which one"):
        Conditioned(PPO(learned_reward={"kind": kind, "demonstrations": "none"}), TWO).check(tensors, (1,))
    Conditioned(PPO(learned_reward="icm"), TWO).check(tensors, (1,))


def test_reward_models_get_the_conditioned_observation(tensors: EnvSpec) -> None:
    """A vector, though the game shows images."""
    image = Box(0.0, 1.0, (3, 36, 36), np.float32)
    shown = replace(tensors, agents=tuple(replace(agent, observation=image) for agent in tensors.agents))
    curious = PPO(learned_reward={"kind": "rnd", "network": "impala"})
    check_fits(curious, shown, (1,))
    with pytest.raises(ScenarioError, match=r"learned_reward\.network"):
        Conditioned(curious, TWO).check(shown, (1,))


@pytest.mark.parametrize("kind", ["rnd", "icm"])
def test_nothing_is_new_behind_the_end_of_an_enumerated_game(kind: str, enumerated: EnvSpec) -> None:
    """What ids of -1 stand for is shown as zeros, which nobody saw: they are not paid for, not learned from, and no numbers of theirs
    count."""
    algorithm = PPO(hidden=(4,), batch=40, epochs=1, learned_reward={"kind": kind, "hidden": (4,)})
    learner = Conditioned(algorithm, TWO).learner(LearnerContext(enumerated, (1,), 0, total=100))
    rows = rollout(learner, enumerated, 0, 0)
    rows = replace(
        rows, tail=np.zeros_like(rows.tail), bootstrap_observation=np.full_like(rows.bootstrap_observation, -1)
    )
    learned = learner._inner._items.learned_reward
    asked = []
    novelty = learned._novelty
    find, teach = novelty.errors, novelty.learn
    novelty.errors = lambda steps: asked.append((steps, find(steps))) or asked[-1][1]
    novelty.learn = lambda steps, which: asked.append(which) or teach(steps, which)
    learner.items(rows)
    (_, errors), which = asked
    last = rows.start[1:] - 1
    inside = np.setdiff1d(np.arange(rows.num_rows), last)
    assert len(inside)
    assert (errors[last] == 0).all()
    assert (errors[inside] > 0).all()
    np.testing.assert_array_equal(which, inside)
    assert learned._observations.moments.count == len(inside)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (PPO(share_weights=False), "PPO tells agents apart .* Use share_weights=true"),
        (MAT(batch_unit="episodes"), "MAT plays a team together.* Use mappo with batch_unit=episodes"),
    ],
    ids=["separate networks", "together"],
)
def test_networks_that_want_to_know_whose_rows_these_are(algorithm: Algorithm, message: str, width: int) -> None:
    """A condition of 0 and 1 would count as an agent's id."""
    Conditioned(MAPPO(batch_unit="episodes"), np.eye(width, dtype=np.float32)).check(team_env(), (0,))
    with pytest.raises(ScenarioError, match=message):
        Conditioned(algorithm, np.eye(width, dtype=np.float32)).check(team_env(), (0,))


def test_images_are_refused(tensors: EnvSpec) -> None:
    bytes_ = Box(0, 255, (3, 8, 8), np.uint8)
    shown = replace(tensors, agents=tuple(replace(agent, observation=bytes_) for agent in tensors.agents))
    with pytest.raises(ScenarioError, match="a Box of floats"):
        Conditioned(PPO(), TWO).check(shown, (1,))
