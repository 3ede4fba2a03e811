"""Matchmaking of the league against probabilities worked by hand from the pseudocode of Vinyals et al. 2019."""

from __future__ import annotations

import pytest

from ludus.core.errors import ConfigError
from ludus.schedulers.league import LeaguePlayer, LeagueRules, Opponent, PlayerCheckpoint, opponent_probabilities, ready
from ludus.schedulers.win_rates import Member

M0, M1 = LeaguePlayer(0, "main", 0), LeaguePlayer(0, "main", 1)
EXPLOITER, LEAGUE = LeaguePlayer(0, "main_exploiter", 0), LeaguePlayer(0, "league_exploiter", 0)
FIRST = PlayerCheckpoint(Member(0, 0))
OLD, NEW = PlayerCheckpoint(Member(0, 1), M0), PlayerCheckpoint(Member(0, 2), M0)
OF_EXPLOITER, OF_LEAGUE = PlayerCheckpoint(Member(0, 3), EXPLOITER), PlayerCheckpoint(Member(0, 4), LEAGUE)
RULES = LeagueRules()


def meets(
    player: LeaguePlayer,
    past: list[PlayerCheckpoint],
    rates: dict[Opponent, float],
    mains: tuple[LeaguePlayer, ...] = (M0,),
) -> dict[Opponent, float]:
    given = opponent_probabilities(
        player, mains, past, lambda mine, other: rates[other] if mine == player else 0.0, RULES
    )
    assert sum(given.values()) == pytest.approx(1.0)
    return dict(given)


def test_the_first_games_of_a_main_agent() -> None:
    # half against the only one of the past; nothing is forgotten (a suffix of one is monotonic), so half against itself
    assert meets(M0, [FIRST], {FIRST: 0.5}) == pytest.approx({FIRST: 0.5, M0: 0.5})


def test_a_main_agent_that_has_forgotten_and_is_exploited_by_nobody() -> None:
    # squared: 0.25, 0.64, 0.16, 0.01 of 1.06; rising from 0.2 to 0.6, so FIRST, OLD, NEW are verified: 0.25, 0.64, 0.16 of 1.05
    rates = {FIRST: 0.5, OLD: 0.2, NEW: 0.6, OF_LEAGUE: 0.9}
    expected = {
        FIRST: 0.5 * 0.25 / 1.06 + 0.15 * 0.25 / 1.05,
        OLD: 0.5 * 0.64 / 1.06 + 0.15 * 0.64 / 1.05,
        NEW: 0.5 * 0.16 / 1.06 + 0.15 * 0.16 / 1.05,
        OF_LEAGUE: 0.5 * 0.01 / 1.06,
        M0: 0.35,
    }
    assert meets(M0, [FIRST, OLD, NEW, OF_LEAGUE], rates) == pytest.approx(expected)


def test_the_monotonic_suffix_is_not_verified() -> None:
    # 0.5, 0.9, 0.6: FIRST and OLD are left (0.25 and 0.01 of 0.26); NEW is only less beaten because it is newer
    rates = {FIRST: 0.5, OLD: 0.9, NEW: 0.6}
    expected = {
        FIRST: 0.5 * 0.25 / 0.42 + 0.15 * 0.25 / 0.26,
        OLD: 0.5 * 0.01 / 0.42 + 0.15 * 0.01 / 0.26,
        NEW: 0.5 * 0.16 / 0.42,
        M0: 0.35,
    }
    assert meets(M0, [FIRST, OLD, NEW], rates) == pytest.approx(expected)


def test_an_exploited_main_agent_meets_the_exploiters_checkpoints() -> None:
    # squared: 0.25, 0.04, 0.64 of 0.93; the exploiter's checkpoint is beaten in less than 0.3
    rates = {FIRST: 0.5, OLD: 0.8, OF_EXPLOITER: 0.2}
    expected = {
        FIRST: 0.5 * 0.25 / 0.93,
        OLD: 0.5 * 0.04 / 0.93,
        OF_EXPLOITER: 0.5 * 0.64 / 0.93 + 0.15,
        M0: 0.35,
    }
    assert meets(M0, [FIRST, OLD, OF_EXPLOITER], rates) == pytest.approx(expected)


def test_a_main_agent_that_beats_everybody_plays_itself() -> None:
    # all is verified and well (the least is 0.75), so 0.15 goes to self-play; squared: 0.0625, 0.01
    rates = {FIRST: 0.75, OLD: 0.9, OF_EXPLOITER: 0.9}
    expected = {FIRST: 0.5 * 0.0625 / 0.0825, OLD: 0.5 * 0.01 / 0.0825, OF_EXPLOITER: 0.5 * 0.01 / 0.0825, M0: 0.5}
    assert meets(M0, [FIRST, OLD, OF_EXPLOITER], rates) == pytest.approx(expected)


def test_two_main_agents_of_which_the_other_is_too_strong_yet() -> None:
    # M1 is met half of the time; at 0.3 its checkpoints are played instead: FIRST (everyone's) by variance, 0.25 of 0.34, and ITS, 0.09
    its = PlayerCheckpoint(Member(0, 5), M1)
    rates = {FIRST: 0.5, its: 0.1, M1: 0.3}
    # 0.5, 0.1 falls: nothing is verified, for neither main agent
    expected = {
        FIRST: 0.5 * 0.25 / 1.06 + 0.25 * 0.25 / 0.34,
        its: 0.5 * 0.81 / 1.06 + 0.25 * 0.09 / 0.34,
        M0: 0.25,
    }
    assert meets(M0, [FIRST, its], rates, (M0, M1)) == pytest.approx(expected)


def test_main_exploiters_meet_main_agents() -> None:
    assert meets(EXPLOITER, [FIRST, OLD], {FIRST: 0.9, OLD: 0.5, M0: 0.11}) == {M0: 1.0}
    # at 0.1 the main agent's checkpoints are a curriculum: variance 0.09, 0.25
    hopeless = meets(EXPLOITER, [FIRST, OLD, OF_LEAGUE], {FIRST: 0.9, OLD: 0.5, OF_LEAGUE: 0.5, M0: 0.1})
    assert hopeless == pytest.approx({FIRST: 0.09 / 0.34, OLD: 0.25 / 0.34})


def test_league_exploiters_meet_the_past() -> None:
    # linear, at most 0.5: 0.5, 0.5, 0.25
    rates = {FIRST: 0.1, OLD: 0.5, OF_EXPLOITER: 0.75}
    assert meets(LEAGUE, [FIRST, OLD, OF_EXPLOITER], rates) == pytest.approx({FIRST: 0.4, OLD: 0.4, OF_EXPLOITER: 0.2})


@pytest.mark.parametrize("wrong", [{"past": 0.9, "verification": 0.2}, {"strong": 1.5}, {"least": 0}, {"least": 5}])
def test_rules_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="league"):
        LeagueRules(**wrong)


@pytest.mark.parametrize(
    ("age", "rates", "expected"),
    [(1, [0.9], False), (2, [0.9, 0.71], True), (2, [0.9, 0.7], False), (3, [0.0], False), (4, [0.0], True)],
)
def test_who_becomes_a_checkpoint(age: int, rates: list[float], expected: bool) -> None:
    assert ready(age, rates, RULES) is expected
