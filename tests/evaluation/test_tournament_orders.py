"""Tournaments with a budget: which orders are decided, by hand; where episodes go; and that a killed one goes on as it would have."""

from __future__ import annotations

from contextlib import chdir
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ludus.core.errors import ConfigError
from ludus.core.types import EnvSpec
from ludus.envs.config import Environment
from ludus.envs.registry import make_env
from ludus.policies.file import save_policy
from ludus.policies.specs import tabular_spec
from ludus.tournament.entrants import TournamentField, read_field, run_at
from ludus.tournament.meetings import Pairing
from ludus.tournament.ranking_decisions import (
    FIRST,
    Rounds,
    UndecidedPair,
    bounds_of,
    decide_ranking,
    undecided_pairings,
)
from ludus.tournament.results import PairingResult
from ludus.tournament.run import Options, play_tournament, run_tournament
from ludus.tournament.tournament_report import TournamentReport
from ludus.tournament.tournament_store import PlayedChunk

KUHN = Environment(id="openspiel/kuhn_poker", num_envs=16)
SENSE = (1.0, 0.8, 0.4, 0.2, 0.0, -0.4, -0.6, -1.0)


def spec(players: int, *, zero_sum: bool = False) -> EnvSpec:
    """Returns between -1 and 1."""
    games = {1: "openspiel/catch", 2: "openspiel/kuhn_poker", 3: "openspiel/kuhn_poker(players=3)"}
    found = make_env(games[players], num_envs=1).spec
    return replace(found, utility_range=((-1.0, 1.0),) * players, zero_sum=zero_sum)


def meeting(names: str) -> Pairing:
    return Pairing(tuple(names), (tuple(names), tuple(names[::-1])) if len(names) > 1 else (tuple(names),))


def result(names: str, n: int, *mean: float) -> PairingResult:
    """Of returns with a spread of 0.5."""
    return PairingResult(meeting(names), n, np.array(mean), np.full(len(mean), n / 4), ())


def played(names: str, first: int, n: int, mean: float) -> PlayedChunk:
    return PlayedChunk(meeting(names).id, first, n, np.array([mean, -mean]), np.full(2, n / 4), ())


# ---------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("zero_sum", [True, False])
def test_who_is_better_when_they_meet(zero_sum: bool) -> None:
    """1,000 deals: a beats b, b beats c, c and a are close."""
    results = [result("ab", 1000, 0.4, -0.4), result("ac", 1000, -0.02, 0.02), result("bc", 1000, 0.3, -0.3)]
    found = decide_ranking(results, spec(2, zero_sum=zero_sum), budget=9, confidence=0.95)
    assert (found.number, found.undecided) == (3, (UndecidedPair(("a", "c")),))
    assert undecided_pairings(bounds_of(results, spec(2, zero_sum=zero_sum), 0.95), spec(2)).tolist() == [
        False,
        True,
        False,
    ]


def test_the_payoffs_of_a_general_sum_game_are_compared_and_not_their_signs() -> None:
    results = [result("ab", 1000, 0.8, 0.4), result("ac", 1000, -0.4, -0.4), result("bc", 1000, -0.8, -0.4)]
    assert decide_ranking(results, spec(2), budget=9, confidence=0.95).undecided == (UndecidedPair(("a", "c")),)


def test_three_who_meet_have_three_orders() -> None:
    results = [result("abc", 1000, 0.5, 0.01, -0.01), result("abd", 1000, 0.3, -0.3, 0.29)]
    found = decide_ranking(results, spec(3), budget=9, confidence=0.95)
    assert found.number == 6
    assert found.undecided == (UndecidedPair(("b", "c"), ("a",)), UndecidedPair(("a", "d"), ("b",)))


def test_of_one_player_the_means_are_compared() -> None:
    results = [result("a", 1000, 0.5), result("b", 1000, 0.1), result("c", 1000, 0.48), result("d", 1000, -0.4)]
    found = decide_ranking(results, spec(1), budget=9, confidence=0.95)
    assert (found.number, found.undecided) == (6, (UndecidedPair(("a", "c")),))
    assert undecided_pairings(bounds_of(results, spec(1), 0.95), spec(1)).tolist() == [True, False, True, False]


def test_seats_with_other_returns_have_one_range() -> None:
    """Who got 0 to 1 in one seat and -1 to 0 in the other got -1 to 1: the least and the largest of both bound the mean."""
    other = replace(spec(2), utility_range=((0.0, 1.0), (-1.0, 0.0)))
    low, high = bounds_of([result("ab", 10, 0.0, 0.0)], other, 0.95)
    assert (low < -0.5).all()
    assert (high > 0.5).all()


# ---------------------------------------------------------------------------------------------- rounds


def wanted(rounds: Rounds, *new: PlayedChunk) -> dict[str, tuple[int, int]]:
    """Names -> (first, n)."""
    return {"".join(p.pairing.entrants): (p.first, p.n) for p in rounds.next_pieces(new)}


def test_undecided_meetings_go_on_by_quarters_until_the_budget_is_spent() -> None:
    """A deal of both takes 4 episodes: 40 in the first round, 12, 16; of the 9 that are left two deals can be had."""
    rounds = Rounds([meeting("ab"), meeting("cd")], spec(2), budget=77, confidence=0.95)
    assert wanted(rounds) == {"ab": (0, FIRST), "cd": (0, FIRST)}
    assert wanted(rounds, played("ab", 0, 10, 0.0), played("cd", 0, 10, 0.0)) == {"ab": (10, 3), "cd": (10, 3)}
    assert rounds.left == 37
    assert wanted(rounds, played("ab", 10, 3, 0.0), played("cd", 10, 3, 0.0)) == {"ab": (13, 4), "cd": (13, 4)}
    assert wanted(rounds, played("ab", 13, 4, 0.0), played("cd", 13, 4, 0.0)) == {"ab": (17, 2), "cd": (17, 2)}
    assert wanted(rounds, played("ab", 17, 2, 0.0), played("cd", 17, 2, 0.0)) == {}
    assert rounds.left == 1


def test_who_has_fewer_deals_catches_up_first() -> None:
    """One meeting has 100 deals of an earlier command, another is decided by them."""
    rounds = Rounds([meeting("ab"), meeting("ac"), meeting("bc")], spec(2), budget=10_000, confidence=0.95)
    assert wanted(rounds, played("ab", 0, 100, 0.0), played("ac", 0, 500, 0.9)) == {"bc": (0, 10)}
    assert wanted(rounds, played("bc", 0, 10, 0.0)) == {"bc": (10, 3)}


def test_a_round_is_the_same_however_it_was_cut() -> None:
    """Killed in its second round: what is missing of that is played, whatever its first deals say."""
    rounds = Rounds([meeting("ab"), meeting("cd")], spec(2), budget=10_000, confidence=0.95)
    stored = [played("ab", 0, 10, 0.0), played("cd", 0, 10, 0.0), played("ab", 10, 2, 0.9)]
    assert wanted(rounds, *stored) == {"ab": (12, 1), "cd": (10, 3)}


def test_episodes_under_other_options_count_against_the_budget() -> None:
    """At a higher confidence `ab` got 5,000 deals; now it is decided by what its first ones say, and little is left for `cd`."""
    stored = [played("ab", 0, 10, 0.9), played("ab", 10, 4990, 0.9), played("cd", 0, 10, 0.0)]
    assert wanted(Rounds([meeting("ab"), meeting("cd")], spec(2), budget=10_022, confidence=0.95), *stored) == {}
    assert "cd" in wanted(Rounds([meeting("ab"), meeting("cd")], spec(2), budget=10_100, confidence=0.95), *stored)
    rounds = Rounds([meeting("ab"), meeting("ac")], spec(2), budget=10_010, confidence=0.95)
    with pytest.raises(ConfigError, match=r"10,000 of these entrants are stored, .* take 20\. Give at least 10,020"):
        rounds.next_pieces(stored[:2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 39}, "a budget of 39 episodes was given; 10 deals of each meeting .2., .* take 40 before"),
        ({"confidence": 1.0}, r"confidence is 1\.0, expected a probability between 0 and 1"),
        ({"spec": replace(spec(2), utility_range=((-np.inf, np.inf),) * 2)}, "needs returns between known limits"),
    ],
)
def test_tournament_orders_reject_invalid_options(changes: dict[str, object], words: str) -> None:
    options = {"spec": spec(2), "budget": 40, "confidence": 0.95, **changes}
    with pytest.raises(ConfigError, match=words):
        Rounds([meeting("ab"), meeting("cd")], **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- played


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> TournamentField:
    """Kuhn poker, by how much sense they have: who has 1 bets with the king, passes with the jack; who has -1 the other way round. Each
    beats all that have less, by 0.042 at least (computed)."""
    folder = tmp_path_factory.mktemp("known")
    enumeration = make_env(KUHN.id, num_envs=1).spec.enumeration
    assert enumeration is not None
    card = np.asarray(enumeration.observation)[:, 2:5].argmax(axis=1)
    for sense in SENSE:
        bet = np.array([0.5 - 0.5 * sense, 0.5, 0.5 + 0.5 * sense])[card]
        save_policy(
            folder / f"{sense}.safetensors",
            tabular_spec(enumeration, (0, 1)),
            {"probs": np.stack([1 - bet, bet], axis=1)},
        )
    with chdir(folder):  # names decide the luck, and should be the same wherever the test runs
        return read_field([f"{sense}.safetensors" for sense in SENSE], env=KUHN, find_run=run_at)


def sense_of(entrant: str) -> float:
    return float(Path(entrant).stem)


def numbers(report: TournamentReport) -> dict[str, tuple[int, list[float]]]:
    return {r.pairing.id: (r.n, r.mean.tolist()) for r in report.results}


@pytest.mark.slow
def test_the_ranking_with_a_quarter_of_the_episodes(known: TournamentField, tmp_path: Path) -> None:
    """All 28 orders are decided, and right; everybody against everybody as often has open ones after four times as many episodes."""
    report = run_tournament(known, tmp_path / "adaptive", Options(budget=400_000))
    assert report.orders is not None
    assert (report.orders.number, report.orders.undecided) == (28, ())
    assert report.episodes < 120_000
    for found in report.results:
        a, b = map(sense_of, found.pairing.entrants)
        assert (found.mean[0] > found.mean[1]) == (a > b)
    assert [sense_of(standing.name) for standing in report.standings] == list(SENSE)
    most = max(report.results, key=lambda r: r.n)
    assert abs(np.subtract(*map(sense_of, most.pairing.entrants))) < 0.3, "neighbours take most"
    uniform = run_tournament(known, tmp_path / "uniform", Options(episodes=4 * report.episodes // (28 * 2)))
    assert uniform.episodes > 3.99 * report.episodes
    assert uniform.orders is None
    assert decide_ranking(uniform.results, known.spec, budget=1, confidence=0.95).undecided


def test_the_budget_holds_and_what_is_open_is_named(known: TournamentField, tmp_path: Path) -> None:
    report = run_tournament(known, tmp_path, Options(budget=30_000))
    assert 29_900 < report.episodes <= 30_000
    assert report.orders is not None
    open_ = [tuple(map(sense_of, pair.entrants)) for pair in report.orders.undecided]
    assert 0 < len(open_) < 28
    assert all((n, m) in open_ or (m, n) in open_ for n, m in [(1.0, 0.8), (0.4, 0.2), (-0.4, -0.6)])
    more = run_tournament(known, tmp_path, Options(budget=60_000))
    assert 30_000 < more.episodes <= 60_000
    assert more.orders is not None
    assert len(more.orders.undecided) < len(open_)


@pytest.mark.slow
def test_killed_it_goes_through_the_same_rounds(
    known: TournamentField, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(budget=5000)
    whole = run_tournament(known, tmp_path / "whole", options)
    monkeypatch.setattr("ludus.tournament.run._BATCH", 150)
    for at in (300, 4000):

        def stop(done: int, total: int, at: int = at) -> None:
            assert total <= 5000
            if done > at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_tournament(known, tmp_path / str(at), options, stop)
        told: list[tuple[int, int]] = []
        report = run_tournament(known, tmp_path / str(at), options, lambda *now, told=told: told.append(now))
        assert told[0][1] <= 5000 - at + 150, "what was stored is not played again"
        assert numbers(report).keys() == numbers(whole).keys()
        for key, (n, mean) in numbers(whole).items():
            assert numbers(report)[key][0] == n
            np.testing.assert_allclose(numbers(report)[key][1], mean, atol=1e-12)
        assert report.orders == whole.orders


def test_stored_episodes_count_in_adaptive_order(
    known: TournamentField, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_tournament(known, tmp_path, Options(episodes=40))
    more = run_tournament(known, tmp_path, Options(budget=4000))
    assert all(found.n >= 40 for found in more.results)
    assert first.episodes == 28 * 80 < more.episodes <= 4000
    monkeypatch.setattr("ludus.tournament.run.RolloutManager", None)
    assert numbers(run_tournament(known, tmp_path, Options(budget=4000))) == numbers(more)


@pytest.mark.usefixtures("bots_here")
def test_bots_and_three_players(tmp_path: Path) -> None:
    """Two that are one are never told apart. Six orders of seats each."""
    names = ("own_bots:First", "bot:random", "bot:uniform_random")
    options = Options(budget=1000, workers=2)
    report = play_tournament(names, tmp_path, env=Environment(id="openspiel/kuhn_poker(players=3)"), options=options)
    assert report.orders is not None
    assert 990 < report.episodes <= 1000
    assert UndecidedPair(("bot:random", "bot:uniform_random"), ("own_bots:First",)) in report.orders.undecided
    assert report.orders.number == len(list(combinations(names, 2)))


@pytest.mark.usefixtures("bots_here")
def test_a_single_player(tmp_path: Path) -> None:
    env = Environment(id="openspiel/catch", num_envs=8)
    names = ["bot:random", "bot:uniform_random"]
    report = play_tournament(names, tmp_path, env=env, options=Options(budget=100))
    assert report.orders is not None
    assert (report.orders.number, report.episodes) == (1, 100)
    assert report.orders.undecided == (UndecidedPair(("bot:random", "bot:uniform_random")),)
