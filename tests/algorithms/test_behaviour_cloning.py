"""Behaviour cloning: its loss, what it recovers, what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from ludus.algorithms.common.losses import CategoricalDistribution, MultiCategoricalDistribution, distribution_of
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.apps.episodes.trajectory_export import record_trajectories
from ludus.contrib.algorithms.bc.clone import Clone, Cloning, agreement, clone, nll_loss
from ludus.contrib.algorithms.bc.demonstrations import demonstrations, split
from ludus.contrib.algorithms.bc.models import model_of
from ludus.core.errors import ConfigError, DataError, PolicyError, TrainingError
from ludus.core.types import AgentSpec, DeviceChoice, EnvSpec, Mixture, PolicyRef, PolicySpec, SegmentEnd
from ludus.envs.registry import make_env
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import tabular_spec
from ludus.replay.parquet import Recorded, TrajectoryOrigin, read_trajectories
from ludus.replay.trajectories import Trajectories, select

# ------------------------------------------------------------------------------------------ losses, by hand


def test_cross_entropy_and_its_gradient_by_hand() -> None:
    """Logits log 1, log 2, log 5: probabilities 1/8, 1/4, 5/8; without the last action 1/3 and 2/3."""
    out = torch.tensor([[1.0, 2.0, 5.0]] * 2, dtype=torch.float64).log().requires_grad_()
    mask = torch.tensor([[True, True, True], [True, True, False]])
    loss = nll_loss(CategoricalDistribution(), out, torch.tensor([1, 0]), mask)
    np.testing.assert_allclose(loss.detach(), [math.log(4), math.log(3)], rtol=1e-14)
    (slope,) = torch.autograd.grad(loss.sum(), out)
    np.testing.assert_allclose(slope, [[1 / 8, 1 / 4 - 1, 5 / 8], [1 / 3 - 1, 2 / 3, 0]], rtol=1e-13)


def test_vectors_of_choices_add_up() -> None:
    out = torch.tensor([[1.0, 3.0, 1.0, 1.0, 2.0]], dtype=torch.float64).log()
    loss = nll_loss(MultiCategoricalDistribution((2, 3)), out, torch.tensor([[1, 2]]), None)
    assert loss.item() == pytest.approx(-math.log(3 / 4 * 2 / 4), rel=1e-14)


def test_likelihood_of_a_gaussian_by_hand() -> None:
    """Mean 1 and σ 2 at 4: ½ (3/2)² + log 2 + ½ log 2π; slopes -(a - μ)/σ² and 1 - z²."""
    distribution = distribution_of({"kind": "gaussian", "shape": [1], "low": [None], "high": [None]})
    out = torch.tensor([[1.0, math.log(2.0)]], dtype=torch.float64, requires_grad=True)
    loss = nll_loss(distribution, out, torch.tensor([[4.0]]), None)
    assert loss.item() == pytest.approx(1.125 + math.log(2) + 0.5 * math.log(2 * math.pi), rel=1e-12)
    (slope,) = torch.autograd.grad(loss.sum(), out)
    np.testing.assert_allclose(slope, [[-0.75, 1 - 2.25]], rtol=1e-12)


def test_agreement_by_hand() -> None:
    out = torch.tensor([[0.0, 2.0, 3.0], [0.0, 2.0, 3.0], [5.0, 2.0, 3.0]])
    legal = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    assert agreement(out, torch.tensor([1, 1, 0]), legal, (3,)).tolist() == [1, 0, 1]
    assert agreement(out, torch.tensor([[0, 1], [0, 0], [0, 1]]), None, (1, 2)).tolist() == [1, 0, 1]


# ------------------------------------------------------------------------------------------ made-up decisions


def game(observation: Space[Any], action: Space[Any], name: str = "tests/made_up") -> EnvSpec:
    return EnvSpec(name, (AgentSpec("one", 0, observation, action),), ((-1, 1),), ((0,),))


def made_up(
    observation: NDArray[Any],
    action: NDArray[Any],
    *,
    length: int = 1,
    mask: NDArray[np.bool_] | None = None,
    space: Space[Any] = Discrete(3),  # noqa: B008
    tail: SegmentEnd = SegmentEnd.TERMINATED,
) -> Recorded:
    """Episodes of `length` decisions each, all of which end alike."""
    n = len(action)
    episodes = n // length
    whole = Trajectories(
        start=np.arange(0, n + 1, length),
        observation=observation,
        action=action,
        logp=np.zeros(n, np.float32),
        reward=np.zeros(n, np.float32),
        mask=mask,
        t=np.tile(np.arange(length, dtype=np.int32), episodes),
        tail=np.full(episodes, tail, np.int8),
        bootstrap_observation=observation[length - 1 :: length],
        bootstrap_mask=None if mask is None else mask[length - 1 :: length],
        agent=np.zeros(episodes, np.int16),
        seat=np.zeros(episodes, np.int8),
        episode=np.arange(episodes),
        version_lo=np.zeros(episodes, np.int32),
        version_hi=np.zeros(episodes, np.int32),
        policy="expert",
    )
    return Recorded(TrajectoryOrigin("tests/made_up", 1, (0,), Box(-1, 1, (2,)), space), (whole,))


THREE = game(Box(-1, 1, (2,), np.float32), Discrete(3))


def sides(n: int = 2000, seed: int = 0, *, masked: bool = True) -> Recorded:
    """Action 0 or 1 by the sign of the first entry, 9 times of 10; action 2 is never legal."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    action = ((x[:, 0] > 0) ^ (rng.random(n) < 0.1)).astype(np.int32)
    mask = np.tile([True, True, False], (n, 1)) if masked else None
    return made_up(x, action, mask=mask)


def acted(found: Clone, x: NDArray[Any], mask: NDArray[np.bool_] | None, *, mode: str = "explore") -> NDArray[Any]:
    policy = build_policy(found.spec, found.weights)
    noise = np.random.default_rng(1).random((len(x), policy.noise_width), dtype=np.float32)
    return policy.act(x, mask, None, noise, mode=mode).action


@pytest.mark.parametrize(
    "algorithm", [PPO(hidden=(16,)), PPO(hidden=(16,), value_network="separate", normalise_observations=True), A2C()]
)
def test_discrete_actions_are_recovered(algorithm: Any) -> None:
    recorded = sides()
    found = clone(recorded, THREE, algorithm.policy, Cloning(learning_rate=1e-2, epochs=15), seed=1)
    assert 0.85 < found.best.accuracy < 0.95
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert found.best.held == pytest.approx(entropy, abs=0.12)
    assert found.best.held < found.epochs[0].held == pytest.approx(math.log(2), abs=0.05)
    (rows,) = recorded.trajectories
    assert rows.mask is not None
    assert (acted(found, rows.observation, rows.mask, mode="greedy") == (rows.observation[:, 0] > 0)).mean() > 0.9
    assert (acted(found, rows.observation, rows.mask) < 2).all()  # never what is masked


def test_statistics_of_observations_travel_with_the_weights() -> None:
    recorded = sides(400)
    found = clone(recorded, THREE, PPO(normalise_observations=True).policy, Cloning(epochs=1, held_out=0))
    x = recorded.trajectories[0].observation
    np.testing.assert_allclose(found.weights["normaliser.mean"], x.mean(axis=0, dtype=np.float64), atol=1e-6)
    np.testing.assert_allclose(found.weights["normaliser.var"], x.var(axis=0, dtype=np.float64), atol=1e-6)


def test_vectors_of_choices_are_recovered() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1500, 2)).astype(np.float32)
    action = np.stack([x[:, 0] > 0, 1 + (x[:, 1] > 0)], axis=1).astype(np.int32)
    env = game(Box(-1, 1, (2,), np.float32), MultiDiscrete([2, 3]))
    found = clone(
        made_up(x, action, space=env.agents[0].action), env, PPO(hidden=(16,)).policy, Cloning(learning_rate=1e-2)
    )
    assert found.best.accuracy > 0.95
    assert (acted(found, x, None, mode="greedy") == action).all(axis=1).mean() > 0.95


def test_means_and_spreads_of_continuous_actions_are_recovered() -> None:
    """Actions 2 x + 0.1 noise: -log density 0.5 log(2πe) + log 0.1 on average."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 2)).astype(np.float32)
    action = (2 * x[:, :1] + 0.1 * rng.standard_normal((2000, 1))).astype(np.float32)
    env = game(Box(-1, 1, (2,), np.float32), Box(-np.inf, np.inf, (1,), np.float32))
    settings = Cloning(learning_rate=1e-2, epochs=80, batch=128)
    found = clone(made_up(x, action, space=env.agents[0].action), env, PPO(hidden=(32,)).policy, settings)
    assert found.best.held == pytest.approx(0.5 * math.log(2 * math.pi * math.e) + math.log(0.1), abs=0.1)
    assert math.isnan(found.best.accuracy)
    assert np.abs(acted(found, x, None, mode="greedy") - 2 * x[:, :1]).mean() < 0.05


@pytest.mark.slow
def test_memory_is_cloned_through_whole_episodes() -> None:
    """The action is the sign that was shown at the first of five decisions; without a memory nothing beats a coin at the other four."""
    rng = np.random.default_rng(0)
    cue = rng.integers(0, 2, 500)
    x = np.zeros((500, 5, 2), np.float32)
    x[:, 0, 0] = 2 * cue - 1
    recorded = made_up(x.reshape(-1, 2), np.repeat(cue, 5).astype(np.int32), length=5)
    settings = Cloning(learning_rate=1e-2, epochs=12, batch=100)
    assert clone(recorded, THREE, A2C(hidden=(16,), memory="gru").policy, settings).best.accuracy > 0.95
    assert clone(recorded, THREE, A2C(hidden=(16,)).policy, settings).best.accuracy < 0.8


# ------------------------------------------------------------------------------------------ how it goes


def same(a: Clone, b: Clone) -> bool:
    return all(a.weights[name].tobytes() == b.weights[name].tobytes() for name in a.weights)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_every_segment_begins_without_memories(memory: str) -> None:
    model = model_of(A2C(memory=memory, memory_size=4).policy(THREE, (0,)), seed=0)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32))
    with torch.no_grad():
        together = model.outputs(x, np.array([0, 3, 7]))
        alone = [model.outputs(x[a:b], np.array([0, b - a])) for a, b in ((0, 3), (3, 7))]
    torch.testing.assert_close(together, torch.cat(alone))
    assert not torch.allclose(model.outputs(x[3:4], np.array([0, 1])), model.outputs(x[2:4], np.array([0, 2]))[1:])


def test_the_same_seed_gives_the_same_bits() -> None:
    settings = Cloning(epochs=3)
    first, again, other = (clone(sides(), THREE, PPO().policy, settings, seed=seed) for seed in (1, 1, 2))
    assert same(first, again)
    assert repr(first.epochs) == repr(again.epochs)
    assert not same(first, other)


@pytest.mark.parametrize("options", [{}, {"memory": "gru"}, {"normalise_observations": True}], ids=str)
def test_it_computes_where_it_is_asked_to_and_reads_numbers_once_an_epoch(options: dict[str, Any]) -> None:
    """Where tensors have no numbers, whatever wants one raises."""
    found = clone(sides(40), THREE, PPO(**options).policy, Cloning(epochs=1), device=DeviceChoice("meta"))
    assert found.placement.device == "meta"
    assert [scores.epoch for scores in found.epochs] == [0, 1]


def test_held_out_episodes_are_not_trained_on() -> None:
    """Whole episodes, and their actions change nothing but the scores."""
    recorded = sides(300)
    found, _ = demonstrations(recorded, THREE)
    learned, held = split(found, share=0.2, seed=0)
    assert len(held) == 60
    assert sorted([*learned, *held]) == list(range(300))
    other = sides(300)
    other.trajectories[0].action[found.rows(held)] ^= 1
    settings = Cloning(epochs=2, held_out=0.2, patience=9)
    one, two = clone(recorded, THREE, PPO().policy, settings), clone(other, THREE, PPO().policy, settings)
    assert [s.learned for s in one.epochs[1:]] == [s.learned for s in two.epochs[1:]]
    assert one.epochs[-1].held != two.epochs[-1].held
    seen = sides(300)
    seen.trajectories[0].observation[found.rows(held)] *= -0.5
    policy = PPO(normalise_observations=True).policy
    means = [clone(each, THREE, policy, settings).weights["normaliser.mean"] for each in (recorded, seen)]
    np.testing.assert_array_equal(*means)


def test_both_players_of_an_episode_are_held_out_together(tmp_path: Path) -> None:
    recorded = kuhn(tmp_path / "a.parquet", episodes=50)[0]
    found, _ = demonstrations(recorded, make_env("openspiel/kuhn_poker", num_envs=1).spec)
    learned, held = split(found, share=0.1, seed=0)
    assert len(np.unique(found.episode[held])) == 5
    assert not set(found.episode[held]) & set(found.episode[learned])


def test_the_best_epoch_is_kept_and_it_stops_early() -> None:
    """Actions by chance: what is learned by heart does not help with what is held out."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 2)).astype(np.float32)
    noise = made_up(x, rng.integers(0, 3, 60).astype(np.int32))
    found = clone(noise, THREE, PPO().policy, Cloning(learning_rate=3e-2, held_out=0.5, patience=3, batch=8))
    assert len(found.epochs) - 1 == found.best.epoch + 3 < 50
    assert found.best.held == min(scores.held for scores in found.epochs)
    short = Cloning(learning_rate=3e-2, held_out=0.5, batch=8, epochs=max(found.best.epoch, 1))
    if found.best.epoch:
        assert same(clone(noise, THREE, PPO().policy, short), found)


def test_gradients_are_scaled_down_to_their_bound() -> None:
    """Far below Adam's epsilon they move nothing."""
    weights = [
        clone(
            sides(64), THREE, PPO().policy, Cloning(epochs=1, held_out=0, learning_rate=0.1, max_gradient_norm=bound)
        ).weights
        for bound in (1e-14, 1.0)
    ]
    start = clone(sides(64), THREE, PPO().policy, Cloning(epochs=1, held_out=0, learning_rate=1e-12)).weights
    still, moved = (max(np.abs(each[name] - start[name]).max() for name in start) for each in weights)
    assert still < 1e-6
    assert moved == pytest.approx(0.1, rel=0.05)


def test_it_goes_on_from_weights() -> None:
    first = clone(sides(), THREE, PPO().policy, Cloning(epochs=4, learning_rate=1e-2))
    second = clone(sides(), THREE, PPO().policy, Cloning(epochs=1), start=first.weights)
    assert second.epochs[0].held == pytest.approx(first.best.held, abs=1e-6)


def test_without_held_out_episodes_the_last_epoch_counts() -> None:
    told: list[int] = []
    settings = Cloning(epochs=7, held_out=0)
    found = clone(sides(100), THREE, PPO().policy, settings, tell=lambda scores, most: told.append(scores.epoch))
    assert found.best.epoch == 7
    assert math.isnan(found.best.held)
    assert math.isnan(found.floor)
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert found.decisions == (100, 0)


# ------------------------------------------------------------------------------------------ what is refused


def test_cloning_rejects_mismatched_files() -> None:
    recorded = sides(20)
    with pytest.raises(ConfigError, match=r"are of 'tests/made_up'; the scenario plays 'tests/other'"):
        clone(recorded, game(THREE.agents[0].observation, Discrete(3), "tests/other"), PPO().policy)
    with pytest.raises(DataError, match=r"observations of shape \(2,\).* they are of \(4,\)"):
        clone(recorded, game(Box(-1, 1, (4,), np.float32), Discrete(3)), PPO().policy)
    with pytest.raises(ConfigError, match=r"players: 1 is no player; tests/made_up has the players 0 to 0"):
        clone(recorded, THREE, PPO().policy, players=[1])
    with pytest.raises(ConfigError, match=r"policies \['novice'\] were given; the file has decisions of expert"):
        clone(recorded, THREE, PPO().policy, policies=["novice"])
    with pytest.raises(
        PolicyError, match="policies of kind 'action_values' cannot be cloned into; actor_critic, torch can"
    ):
        clone(recorded, THREE, DQN().policy)
    team = PolicySpec("actor_critic", {"agents": 2})
    with pytest.raises(
        PolicyError, match=r"a network for each agent of a team.* Give share_weights=true to the algorithm"
    ):
        clone(recorded, THREE, lambda env, seats: team)
    with pytest.raises(ConfigError, match="1 episode is there, and 1 would be held out"):
        clone(sides(1), THREE, PPO().policy)
    nothing = select(recorded.trajectories[0], np.empty(0, np.int64))
    with pytest.raises(DataError, match="there are no decisions of players"):
        clone(Recorded(recorded.origin, (nothing,)), THREE, PPO().policy)
    recorded.trajectories[0].action[3] = 2
    with pytest.raises(DataError, match="1 of the actions are not legal where they were taken"):
        clone(recorded, THREE, PPO().policy)
    with pytest.raises(ConfigError, match="held_out"):
        Cloning(held_out=1.0)


@pytest.mark.parametrize("counts", [[4, 2], [3, 4], [2, 3]])
def test_actions_of_other_counts_are_refused(counts: list[int]) -> None:
    """Their masks would be sliced elsewhere, wherever they are as wide."""
    x, action, mask = np.zeros((9, 2), np.float32), np.zeros((9, 2), np.int32), np.ones((9, 5), np.bool_)
    recorded = made_up(x, action, mask=mask, space=MultiDiscrete([3, 2]))
    with pytest.raises(
        DataError, match=r"file has actions of MultiDiscrete\(\[3 2\]\); in the scenario's tests/made_up"
    ):
        clone(recorded, game(Box(-1, 1, (2,), np.float32), MultiDiscrete(counts)), PPO().policy)


def test_numbers_that_are_not_finite_stop_it() -> None:
    recorded = sides(200)
    recorded.trajectories[0].observation[50] = np.nan
    with pytest.raises(TrainingError, match="behaviour cloning: the loss became nan"):
        clone(recorded, THREE, PPO().policy, Cloning(held_out=0))


# ------------------------------------------------------------------------------------------ games


def kuhn(path: Path, *, episodes: int, name: str = "kuhn_poker") -> tuple[Recorded, EnvSpec, list[Policy]]:
    """Games of two random tables."""
    pytest.importorskip("pyarrow")
    env = make_env(f"openspiel/{name}", num_envs=256, tree="on")
    spec = env.spec
    assert spec.enumeration is not None
    rng = np.random.default_rng(5)
    probs = np.where(spec.enumeration.mask, rng.gamma(1.0, size=spec.enumeration.mask.shape) + 0.02, 0)
    probs /= probs.sum(axis=1, keepdims=True)
    players = [build_policy(tabular_spec(spec.enumeration, (0, 1)), {"probs": probs})] * 2
    refs = [PolicyRef(p, f"{p}-0") for p in (0, 1)]
    mixture = Mixture.product({p: ([ref], [1.0]) for p, ref in enumerate(refs)})
    record_trajectories(path, env, mixture, lambda ref: players[ref.population], episodes=episodes)
    return read_trajectories(path), spec, players


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "episodes", "error"),
    [("kuhn_poker", 20_000, 0.02), pytest.param("leduc_poker", 20_000, 0.08, marks=pytest.mark.long)],
)
def test_a_clone_plays_as_who_was_recorded(tmp_path: Path, name: str, episodes: int, error: float) -> None:
    """Its action probabilities are theirs: by the mean over the decisions of a game, of the distance in total variation."""
    recorded, spec, players = kuhn(tmp_path / "a.parquet", episodes=episodes, name=name)
    assert spec.enumeration is not None
    found = clone(recorded, spec, PPO().policy, Cloning(learning_rate=3e-3, epochs=20))
    policy = build_policy(found.spec, found.weights)
    for player, piece in enumerate(recorded.trajectories):
        mine, theirs = (p.tabulate(spec.enumeration, player) for p in (policy, players[player]))
        assert mine is not None
        assert theirs is not None
        legal = spec.enumeration.mask[spec.enumeration.ids(player)]
        assert (mine[~legal] == 0).all()
        seen = piece.observation - spec.enumeration.offset[player]
        assert (0.5 * np.abs(mine - theirs).sum(axis=1))[seen].mean() < error
    assert found.best.held == pytest.approx(found.floor, abs=0.03)
