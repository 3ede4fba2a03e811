"""Episodes that are decided in advance: the same whatever they are played beside, and wherever."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, PolicyRef
from ludus.envs.config import Environment
from ludus.evaluation.matches import MatchRunner
from ludus.policies.actor_critic import initial_weights
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, parse_bot
from ludus.policies.registry import build_policy
from ludus.policies.specs import gru_spec, mlp_spec, random_spec
from ludus.rollout.base import PlannedEpisodes, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.manager import RolloutManager
from ludus.rollout.worker import RolloutWorker
from ludus.runtime.inprocess import InProcess
from ludus.tournament.entrants import read_field, run_at
from ludus.tournament.run import Options, run_tournament

GAME = Environment(id="openspiel/kuhn_poker", tree="off")
REFS = (PolicyRef(0, "a"), PolicyRef(0, "b"), PolicyRef(0, "c"))


@pytest.fixture(scope="module")
def policies() -> dict[PolicyRef, Policy]:
    """Two networks, one of them with memory, and chance."""
    spec, memory = mlp_spec(inputs=11, actions=2, hidden=[8]), gru_spec(inputs=11, actions=2, hidden=4)
    action = GAME.make(num_envs=1).spec.agents[0].action
    return {
        REFS[0]: build_policy(spec, initial_weights(spec, np.random.default_rng(1))),
        REFS[1]: build_policy(memory, initial_weights(memory, np.random.default_rng(2))),
        REFS[2]: build_policy(random_spec(action), {}),
    }


def planned(n: int = 60) -> PlannedEpisodes:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, size=(2, n), dtype=np.uint64)
    return PlannedEpisodes(REFS, rng.integers(0, 3, size=(n, 2), dtype=np.int32), *keys)


def returns(policies: dict[PolicyRef, Policy], episodes: PlannedEpisodes, num_envs: int, hosts: int) -> np.ndarray:
    spec = GAME.make(num_envs=1).spec
    rollouts = RolloutManager(InProcess(), GAME.make, spec=spec, num_envs=num_envs, shards=hosts, hosts=hosts)
    found = MatchRunner(rollouts, policies.__getitem__, seed=0).play_planned(episodes).returns
    rollouts.close()
    return found


def test_the_same_in_any_number_of_environments_and_hosts(policies: dict[PolicyRef, Policy]) -> None:
    episodes = planned()
    expected = returns(policies, episodes, 64, 1)
    assert len({tuple(row) for row in expected.tolist()}) > 2
    for num_envs, hosts in ((7, 1), (60, 4), (5, 5)):
        assert_allclose(returns(policies, episodes, num_envs, hosts), expected)
    backwards = PlannedEpisodes(REFS, episodes.seats[::-1], episodes.luck[::-1], episodes.noise[::-1])
    assert_allclose(returns(policies, backwards, 16, 2), expected[::-1])


def test_equal_luck_and_chance_give_equal_episodes_and_neither_alone_does(policies: dict[PolicyRef, Policy]) -> None:
    n = 40
    seats = np.zeros((n, 2), np.int32)
    one, many = np.zeros(n, np.uint64), np.arange(n).astype(np.uint64)
    kinds = [
        len({tuple(row) for row in returns(policies, PlannedEpisodes(REFS, seats, luck, noise), 8, 1).tolist()})
        for luck, noise in ((one, one), (many, one), (one, many))
    ]
    assert kinds[0] == 1
    assert min(kinds[1:]) > 1


def test_unplannable_episodes_are_rejected(policies: dict[PolicyRef, Policy]) -> None:
    (request,) = planned(6).requests(6)
    with pytest.raises(ScenarioError, match="6 planned episodes were given for 4 environments"):
        run(request, policies)
    with pytest.raises(ScenarioError, match="planned episodes were given beside a learner or opponents"):
        run(
            RolloutRequest(
                None, (), Mixture.product({0: ([REFS[0]], [1.0])}), "episodes", 6, seed=0, planned=request.planned
            ),
            policies,
        )


def run(request: RolloutRequest, policies: dict[PolicyRef, Policy]) -> None:
    spec = GAME.make(num_envs=1).spec
    RolloutManager(InProcess(), GAME.make, spec=spec, num_envs=4).run(request, list(policies.items()))


def test_bots_of_both_kinds_beside_a_policy(policies: dict[PolicyRef, Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plays by the state sees that of its own environment, however they are mixed and numbered."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    env = Environment(id="openspiel/tic_tac_toe", tree="off").make(num_envs=3)
    names = ("own_bots:First", "own_bots:ByState")
    bots = {PolicyRef(0, name): BotPolicy.of(parse_bot(name)) for name in names}
    chance = {PolicyRef(0, "chance"): build_policy(random_spec(env.spec.agents[0].action), {})}
    refs = (*chance, *bots)
    seats = np.array([[1, 2], [2, 1], [2, 2], [1, 1], [2, 0], [0, 2], [1, 0]], np.int32)
    keys = np.arange(7).astype(np.uint64)
    worker = RolloutWorker(env, LocalBank(env.spec, env.num_envs))
    found = [
        worker.play(request, [*chance.items(), *bots.items()]).episodes.returns
        for request in PlannedEpisodes(refs, seats, keys, keys).requests(3)
    ]
    worker.close()
    assert np.concatenate(found)[:4].tolist() == [[1.0, -1.0]] * 4  # both take the first free square: who begins wins


@pytest.mark.slow
def test_policies_meet_in_processes_as_in_one(tmp_path: Path) -> None:
    names = ["bot:random", "random"]
    field = read_field(names, env=Environment(id="openspiel/leduc_poker", tree="off"), find_run=run_at)
    here, there = (
        run_tournament(field, tmp_path / kind, Options(runtime=kind, workers=2, episodes=50, num_envs=16))
        for kind in ("inprocess", "processes")
    )
    assert here.results[0].n == 50
    assert here.results[0].mean.tolist() == there.results[0].mean.tolist()
    assert here.results[0].m2.tolist() == there.results[0].m2.tolist()
