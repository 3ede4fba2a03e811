"""What episodes count beside returns: in matches, in tournaments, and on disk, with numbers worked by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from ludus.core.types import PolicyRef
from ludus.envs.config import Environment
from ludus.evaluation.matches import MatchProfile, MatchRunner
from ludus.metagame.population.match_log import same_match
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.testing.fakes import COINS, FixedPolicy, coins
from ludus.tournament.run import Options, play_tournament
from ludus.tournament.tournament_report import TournamentReport
from ludus.tournament.tournament_store import FILE

ENV = Environment(id="ludus.testing.fakes:coins", num_envs=4)
TAKES, LEAVES = PolicyRef(0, "takes"), PolicyRef(0, "leaves")
POLICIES = {TAKES: FixedPolicy.of(1), LEAVES: FixedPolicy.of(0)}


def test_a_match_has_those_of_its_episodes() -> None:
    """Who takes every coin, beside one who leaves each, takes all of them alone: rounds, 0, rounds; and 0, rounds, 0."""
    found = []
    for shards in (1, 3):
        rollouts = RolloutManager(InProcess(), coins, spec=coins(1).spec, num_envs=3, shards=shards)
        player = MatchRunner(rollouts, POLICIES.__getitem__, seed=3)
        found += list(player.play([MatchProfile((0, 1), (TAKES, LEAVES))], 7))
        rollouts.close()
    assert same_match(*found)  # however the environments are cut
    match = found[0]
    counted = match.statistics
    assert counted is not None
    assert counted.names == COINS
    assert counted.n.tolist() == [[7] * 3] * 2
    rounds = float(counted.mean[0, 0])
    assert 2 <= rounds <= 4
    assert counted.mean.tolist() == [[rounds, 0, rounds], [0, rounds, 0]]
    assert match.mean.tolist() == [rounds, -rounds]
    np.testing.assert_allclose(counted.m2, np.array([[1, 0, 1], [0, 1, 0]]) * match.m2[0])


def policies(folder: Path) -> list[str]:
    from ludus.policies.file import save_policy

    files = []
    for name, policy in (("takes", POLICIES[TAKES]), ("leaves", POLICIES[LEAVES])):
        save_policy(folder / f"{name}.safetensors", policy.spec, policy.weights())
        files.append(str(folder / f"{name}.safetensors"))
    return files


def play(folder: Path, *entrants: str, episodes: int) -> TournamentReport:
    return play_tournament(entrants, folder / "t", env=ENV, options=Options(episodes=episodes))


def test_a_tournament_keeps_them_and_says_them_of_each_entrant(tmp_path: Path) -> None:
    files = policies(tmp_path)
    report = play(tmp_path, *files, "bot:random", episodes=30)
    takes = next(k for k, standing in enumerate(report.standings) if "takes" in standing.name)
    leaves = next(k for k, standing in enumerate(report.standings) if "leaves" in standing.name)
    counted = report.statistics
    assert counted is not None
    assert counted.names == COINS
    assert counted.n.tolist() == [[120] * 3] * 3  # two meetings, two orders of 30 deals each
    assert counted.mean[takes, 1] == 0
    assert counted.mean[leaves, 0] == 0
    assert counted.mean[leaves, 2] == 0
    assert 0 < counted.mean[takes, 2] < counted.mean[takes, 0]  # against random not all of them alone
    more = play(tmp_path, *files, "bot:random", episodes=40)  # goes on
    assert more.statistics is not None
    assert more.statistics.n.tolist() == [[160] * 3] * 3
    for result in more.results:
        for match in result.matches:
            assert match.statistics is not None
            assert match.statistics.n.tolist() == [[40] * 3] * 2


def test_a_tournament_from_before_goes_on(tmp_path: Path) -> None:
    files = policies(tmp_path)
    play(tmp_path, *files, episodes=10)
    with sqlite3.connect(tmp_path / "t" / FILE) as db:
        db.executescript("DROP VIEW policy_statistics; DROP TABLE statistics; PRAGMA user_version = 2;")
    db.close()
    report = play(tmp_path, *files, episodes=16)
    assert report.statistics is not None
    assert report.statistics.n.tolist() == [[12] * 3] * 2  # of the new deals, in two orders


@pytest.mark.parametrize("game", ["openspiel/kuhn_poker"])
def test_where_nothing_is_counted_nothing_is_said(tmp_path: Path, game: str) -> None:
    env = Environment(id=game, num_envs=4)
    report = play_tournament(["bot:random", "random"], tmp_path / "t", env=env, options=Options(episodes=4))
    assert report.statistics is None
