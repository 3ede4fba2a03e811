"""Ratings of a run's policies: computed payoffs, played ones, and policies that nobody met yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.cli.main import main
from ludus.core.errors import ConfigError, DataError
from ludus.evaluation import run_ratings
from ludus.metagame.population.base import Payoffs
from ludus.storage.reader import Reader


def trained(folder: Path, **options: object) -> Path:
    scenario = ludus.PSRO(
        env={"id": "openspiel/kuhn_poker", "num_envs": 100},
        algorithm="exact",
        generations=2,
        **{"name": "mine", **options},
    )
    ludus.run(scenario, run_dir=folder, report=False)
    return folder


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("computed") / "runs" / "mine")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(
        tmp_path_factory.mktemp("played") / "runs" / "mine", evaluation={"payoffs": "simulate", "episodes": 400}
    )


def test_computed_payoffs_are_rated(computed: Path) -> None:
    found = ludus.rate_run(computed, ["mean_payoff,worst_opponent", "alpha_rank"])
    assert found.names == (("0-0", "0-1", "0-2"), ("1-0", "1-1", "1-2"))
    assert (found.matches, found.unplayed, found.generation) == (0, 0, 2)
    with Reader(computed) as reader:
        mean = reader.payoffs().mean
    assert list(found.tables) == ["mean_payoff", "worst_opponent", "alpha_rank"]
    np.testing.assert_allclose(found.tables["mean_payoff"].of(0), mean[0].mean(axis=1))
    np.testing.assert_allclose(found.tables["worst_opponent"].of(1), mean[1].min(axis=0))
    assert [found.tables["alpha_rank"].of(p).sum() for p in (0, 1)] == pytest.approx([1, 1])
    with pytest.raises(DataError, match="elo rates by episodes that were played"):
        ludus.rate_run(computed, ["elo"])
    with pytest.raises(ConfigError, match="no rating was given"):
        ludus.rate_run(computed, [])


def test_played_matches_are_rated(played: Path) -> None:
    found = ludus.rate_run(played, ["elo", "openskill,model=bradley_terry_full"])
    assert found.matches == 9
    elo = found.tables["elo"]
    assert (elo.low < elo.rating).all()
    assert (elo.rating < elo.high).all()
    assert elo.rating.sum() == pytest.approx(0, abs=1e-6)
    assert list(found.tables) == ["elo", "openskill,model=bradley_terry_full"]


def test_newest_policies_that_nobody_met_are_left_out() -> None:
    """Of three policies each, the third of player 0 and the second and third of player 1 met nobody."""
    mean, count = np.full((2, 3, 3), np.nan), np.zeros((3, 3), np.int64)
    mean[:, :2, 0], count[:2, 0] = 1.0, 5
    nothing = np.zeros((3, 3), np.bool_)
    payoffs = Payoffs(mean, count, np.zeros_like(mean), nothing, ((-1, 1),) * 2, (0, 1), True)
    assert run_ratings._rated_sizes(payoffs) == (2, 1)
    assert payoffs.part({0: range(2), 1: range(1)}).mean.tolist() == [[[1.0], [1.0]]] * 2


def test_the_command(computed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(computed.parent.parent)
    assert main(["evaluate", "mine", "--rating", "worst_opponent,mean_payoff"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "openspiel/kuhn_poker after generation 2, rated by computed payoffs; ordered by worst_opponent"
    assert lines[1:3] == ["population 0", "policy worst_opponent mean_payoff, 95%"]
    worst = [float(line.split()[1]) for line in lines[4:7]]
    assert worst == sorted(worst, reverse=True)
    assert {line.split()[0] for line in lines[4:7]} == {"0-0", "0-1", "0-2"}
    assert lines[7] == "population 1"
    assert main(["evaluate", "mine", "--rating", "elo", "--exploit", "5"]) == 2
    assert "two questions; leave one out" in capsys.readouterr().err


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "ratings"]) == 0
    assert "nash_average" in capsys.readouterr().out
    assert main(["list", "bots"]) == 0
    out = capsys.readouterr().out
    assert "ismcts" in out
    assert "uniform_random" in out
    assert "registered" not in out
