"""Trajectories of policies, as the worker plays them, in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow.parquet")

from ludus.apps.episodes.trajectory_export import _others, _parts, record_trajectories
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import EnvSpec, Mixture, OpponentFactor, PolicyRef, PolicySpec, SegmentEnd
from ludus.envs.registry import make_env
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import tabular_spec
from ludus.replay.parquet import Recorded, read_trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.rollouts import Rollouts

ALL = Mixture.product({p: ([PolicyRef(p, f"{p}-0")], [1.0]) for p in (0, 1)})


def kuhn(num_envs: int = 4, tree: Any = "on") -> Any:
    return make_env("openspiel/kuhn_poker", num_envs=num_envs, tree=tree)


def tables(env: EnvSpec, seed: int = 0) -> dict[PolicyRef, Policy]:
    """A random table for each player, two of them."""
    rng = np.random.default_rng(seed)
    spec = tabular_spec(env.enumeration, (0, 1))  # type: ignore[arg-type]
    probs = rng.dirichlet(np.ones(2), (4, 12)).astype(np.float32)
    built = [build_policy(spec, {"probs": table}) for table in probs]
    return {PolicyRef(p, f"{p}-{k}"): built[2 * p + k] for p in (0, 1) for k in (0, 1)}


def recorded(path: Path, *, num_envs: int = 4, strategies: Mixture = ALL, **options: Any) -> Recorded:
    env = kuhn(num_envs)
    record_trajectories(path, env, strategies, tables(env.spec).__getitem__, **options)
    return read_trajectories(path)


def test_fixed_policies_have_the_same_episodes(tmp_path: Path) -> None:
    """Both players' decisions of an episode have its number, take turns, and what they win sums to zero."""
    told: list[tuple[int, int]] = []
    found = recorded(tmp_path / "a.parquet", episodes=50, tell=lambda *done: told.append(done))
    first, second = found.trajectories
    assert (first.policy, second.policy) == ("0-0", "1-0")
    assert sorted(first.episode) == list(range(50)) == sorted(second.episode)
    paid = [
        dict(zip(t.episode.tolist(), np.add.reduceat(t.reward, t.start[:-1]), strict=True)) for t in found.trajectories
    ]
    assert all(paid[0][k] + paid[1][k] == 0 for k in range(50))
    steps: dict[int, list[int]] = {k: [] for k in range(50)}
    for piece in found.trajectories:
        for segment, episode in enumerate(piece.episode.tolist()):
            steps[episode] += piece.t[piece.start[segment] : piece.start[segment + 1]].tolist()
    assert all(sorted(seen) == list(range(len(seen))) for seen in steps.values())
    assert (first.tail == SegmentEnd.TERMINATED).all()
    assert told[-1] == (100, 100)
    assert told[0] == (16, 100)


def test_a_policy_that_plays_for_several_players_is_played_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    amounts, run = [], Rollouts.run

    def counted(self: Rollouts[Any], request: RolloutRequest, *rest: Any, **more: Any) -> Any:
        amounts.append(request.amount)
        return run(self, request, *rest, **more)

    monkeypatch.setattr(Rollouts, "run", counted)
    ref = PolicyRef(0, "0-0")
    told: list[tuple[int, int]] = []
    alone = Mixture.product({player: ([ref], [1.0]) for player in (0, 1)})
    found = recorded(tmp_path / "a.parquet", strategies=alone, episodes=50, tell=lambda *done: told.append(done))
    assert sum(amounts) == 50
    assert told[-1] == (100, 100)
    (piece,) = found.trajectories
    assert piece.policy == "0-0"
    for seat in (0, 1):
        assert sorted(piece.episode[piece.seat == seat]) == list(range(50))
    paid = np.zeros(50)
    np.add.at(paid, np.repeat(piece.episode, np.diff(piece.start)), piece.reward)
    assert (paid == 0).all()


def test_actions_are_those_of_the_policies(tmp_path: Path) -> None:
    found = recorded(tmp_path / "a.parquet", num_envs=64, episodes=4000)
    env = kuhn().spec
    for player, piece in enumerate(found.trajectories):
        probs = tables(env)[PolicyRef(player, f"{player}-0")].tabulate(env.enumeration, player)
        assert probs is not None
        local = piece.observation - env.enumeration.offset[player]
        np.testing.assert_allclose(piece.logp, np.log(probs[local, piece.action]), atol=1e-5)
        counts = np.zeros_like(probs)
        np.add.at(counts, (local, piece.action), 1)
        seen = counts.sum(axis=1)
        error = np.abs(counts / np.maximum(seen, 1)[:, None] - probs)[:, 0]
        assert (error < 4.5 * np.sqrt(probs[:, 0] * probs[:, 1] / np.maximum(seen, 1)) + 1e-9)[seen > 0].all()


def test_the_same_arguments_give_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        recorded(tmp_path / f"{name}.parquet", episodes=20, seed=3)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    recorded(tmp_path / "b.parquet", episodes=20, seed=4)
    assert (tmp_path / "a.parquet").read_bytes() != (tmp_path / "b.parquet").read_bytes()


def test_mixtures_are_shared_out(tmp_path: Path) -> None:
    mixture = Mixture.product({p: ([PolicyRef(p, f"{p}-{k}") for k in (0, 1)], [0.25, 0.75]) for p in (0, 1)})
    found = recorded(tmp_path / "a.parquet", strategies=mixture, episodes=40, players=[1])
    assert found.origin.seats == (1,)
    assert found.origin.policies == ("1-0", "1-1")
    assert [(t.policy, t.num_segments) for t in found.trajectories] == [("1-0", 10), ("1-1", 30)]
    assert all((t.seat == 1).all() for t in found.trajectories)
    both = recorded(tmp_path / "a.parquet", strategies=mixture, episodes=40)
    assert len({int(k) for t in both.trajectories for k in t.episode}) == 80  # no two are the same


def test_shares_are_right_on_average() -> None:
    weights = [0.013, 0.387, 0.6]
    refs = [PolicyRef(0, f"0-{k}") for k in range(3)]
    mixture = Mixture.product({0: (refs, weights)})
    counts = np.zeros(3)
    for seed in range(400):
        for part in _parts(mixture, 0, episodes=10, seed=seed):
            share = 10 * weights[refs.index(part.ref)]
            assert np.floor(share) <= part.amount <= np.ceil(share) + 1
            counts[refs.index(part.ref)] += part.amount
    assert counts.sum() == 4000
    np.testing.assert_allclose(counts / 4000, weights, atol=0.01)


def test_joint_strategies_stay_joint() -> None:
    """Whoever plays a is met by b alone, by the other device."""
    a, b, c, d = PolicyRef(0, "a"), PolicyRef(1, "b"), PolicyRef(0, "c"), PolicyRef(1, "d")
    joint = Mixture((OpponentFactor((0, 1), ((a, b), (c, d), (c, b)), (0.5, 0.3, 0.2)),))
    assert _others(joint, 0, a) == Mixture((OpponentFactor((1,), ((b,),), (1.0,)),))
    (factor,) = _others(joint, 0, c).factors
    assert factor.entries == ((d,), (b,))
    assert factor.probs == pytest.approx((0.6, 0.4))


def test_unrecordable_trajectories_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for options, error, words in (
        ({"episodes": 0}, ScenarioError, "episodes=0"),
        ({"players": [2]}, ConfigError, "players: 2 is no player"),
        ({"strategies": Mixture(())}, ScenarioError, "nobody was given to play as player 0"),
    ):
        with pytest.raises(error, match=words):
            recorded(path, **options)
    for name, words in (("a.csv", r"ends in \.parquet is needed"), ("no/a.parquet", "there is no folder")):
        with pytest.raises(ConfigError, match=words):
            recorded(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_players_with_other_spaces_want_files_of_their_own(tmp_path: Path) -> None:
    env = kuhn(tree="off")
    agents = (env.spec.agents[0], replace(env.spec.agents[1], action=type(env.spec.agents[1].action)(3)))
    env.spec = replace(env.spec, agents=agents)
    with pytest.raises(ConfigError, match=r"players \[0, 1\] .* have different spaces .*one file holds one kind"):
        record_trajectories(tmp_path / "a.parquet", env, ALL, tables(kuhn().spec).__getitem__)


def test_observations_and_masks_of_games_that_are_not_enumerated(tmp_path: Path) -> None:
    env = make_env("openspiel/tic_tac_toe", num_envs=4, tree="off")
    anyone = build_policy(PolicySpec("random", {"actions": 9}), {})
    written = record_trajectories(tmp_path / "a.parquet", env, ALL, lambda ref: anyone, episodes=6)
    found = read_trajectories(tmp_path / "a.parquet")
    assert sum(t.num_rows for t in found.trajectories) == written.decisions
    assert written.played == {(0, "0-0"): 6, (1, "1-0"): 6}
    for piece in found.trajectories:
        assert piece.observation.shape[1:] == found.origin.observation.shape
        assert piece.mask is not None
        assert piece.mask[np.arange(piece.num_rows), piece.action].all()
