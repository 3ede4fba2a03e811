"""Every stopper can fire, and not a step earlier; parsing, dumping, and what is refused."""

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.config import Config
from ludus.core.errors import ConfigError, UnknownName
from ludus.training.stopping import (
    STOPPERS,
    AnyOf,
    NashConv,
    NoImprovement,
    Progress,
    Stopper,
    dump_stopper,
    parse_stopper,
)

START = Progress()
NAN = float("nan")

# (what a scenario says, the last record at which it goes on, the first at which it stops, the reason)
CASES = [
    ({"steps": 1000}, {"env_steps": 999}, {"env_steps": 1000}, "1,000 of 1,000 env steps are done"),
    ({"decisions": 10}, {"decisions": 9, "env_steps": 99}, {"decisions": 12}, "12 of 10 decisions are done"),
    ({"episodes": 5}, {"episodes": 4}, {"episodes": 5}, "5 of 5 episodes are done"),
    ({"samples": 5}, {"samples": 4}, {"samples": 5}, "5 of 5 samples are done"),
    ({"updates": 2}, {"updates": 1}, {"updates": 2}, "2 of 2 updates are done"),
    ({"generations": 20}, {"generations": 19}, {"generations": 20}, "20 of 20 generations are done"),
    ({"seconds": 7.5}, {"seconds": 7.4}, {"seconds": 7.5}, "7.5 of 7.5 seconds have passed"),
    ({"nash_conv": 0.3}, {"nash_conv": (0.2, 0.31)}, {"nash_conv": (0.9, 0.3)}, "NashConv 0.3 is at most 0.3"),
    ({"nash_conv": 0.3}, {"nash_conv": (NAN,)}, {"nash_conv": (0.1,)}, "NashConv 0.1 is at most 0.3"),
    (
        {"win_rate": {"above": 0.8, "matches": 100}},
        {"win_rates": ((0.9, 60), (0.8, 50), (0.9, 99))},  # 0.8 is not above 0.8, so only 99 count
        {"win_rates": ((0.1, 60), (0.9, 50), (0.81, 50))},
        "more than 80% were won in the last 100 matches",
    ),
    (
        {"win_rate": 0.5},
        {"win_rates": ((0.5, 10),)},
        {"win_rates": ((0.6, 1),)},
        "more than 50% were won in the last 1 matches",
    ),
    (
        {"best_response_gain": {"at_most": 0.05, "generations": 2}},
        {"gains": (0.01, 0.06, 0.04)},
        {"gains": (0.3, 0.05, 0.04)},
        "best responses gained at most 0.05 in the last 2 generations (newest: 0.04)",
    ),
    ({"best_response_gain": 0.0}, {"gains": ()}, {"gains": (-0.1,)}, "best responses gained at most 0 in the last 1"),
    (
        {"no_improvement": 3},
        {"scores": (5.0, 4.0, 4.5)},
        {"scores": (5.0, 4.0, 5.0, 4.5)},
        "scores did not improve by more than 0 in the last 3 evaluations",
    ),
    (
        {"no_improvement": {"evaluations": 2, "min_delta": 0.5, "of": "nash_conv"}},
        {"nash_conv": (2.0, 1.8, 1.4)},  # 2.0 → 1.4 is an improvement by 0.6
        {"nash_conv": (2.0, 1.8, 1.5)},
        "nash_conv did not improve by more than 0.5 in the last 2 evaluations",
    ),
    (
        {"no_improvement": {"evaluations": 1, "of": "win_rates"}},
        {"win_rates": ((0.5, 10), (0.6, 10))},
        {"win_rates": ((0.6, 10), (0.6, 10))},
        "win_rates did not improve",
    ),
    ({"no_improvement": 1}, {"scores": (NAN, 1.0)}, {"scores": (1.0, NAN)}, "scores did not improve"),
    (
        {"any": [{"nash_conv": 0.3}, {"seconds": 75}]},
        {"seconds": 74.0, "nash_conv": (1.0,)},
        {"seconds": 75.0, "nash_conv": (1.0,)},
        "75.0 of 75 seconds have passed",
    ),
    ({"generations": 9, "episodes": 5}, {"episodes": 4}, {"generations": 9}, "9 of 9 generations are done"),
    (
        {"all": [{"generations": 5}, {"nash_conv": 0.3}]},
        {"generations": 6, "nash_conv": (0.4,)},
        {"generations": 6, "nash_conv": (0.2,)},
        "6 of 5 generations are done and NashConv 0.2 is at most 0.3",
    ),
]


@pytest.mark.parametrize(("value", "before", "after", "why"), CASES, ids=lambda v: None)
def test_it_stops_there_and_not_before(value, before, after, why):
    stopper = parse_stopper(value)
    assert stopper.reason(START) is None
    assert stopper.reason(replace(START, **before)) is None
    reason = stopper.reason(replace(START, **after))
    assert reason is not None
    assert reason.startswith(why)


def test_every_registered_stopper_is_among_the_cases():
    assert {name for value, *_ in CASES for name in value} == set(STOPPERS)


def test_dump_and_parse_are_inverse():
    for value, *_ in CASES:
        stopper = parse_stopper(value)
        assert parse_stopper(dump_stopper(stopper)) == stopper, value
        assert parse_stopper(stopper) is stopper, value


def test_dumps_are_short():
    assert dump_stopper(parse_stopper({"generations": {"value": 20}})) == {"generations": 20}
    assert dump_stopper(parse_stopper({"steps": 3, "seconds": 2})) == {"any": [{"steps": 3}, {"seconds": 2.0}]}
    assert dump_stopper(NoImprovement(evaluations=3, of="nash_conv")) == {
        "no_improvement": {"evaluations": 3, "of": "nash_conv"}
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"generatons": 20}, "unknown stopper 'generatons'; did you mean 'generations'"),
        ({"any": [{"nash": 1}]}, "unknown stopper 'nash'; did you mean 'nash_conv'"),
        ({"generations": 0}, "stopper 'generations': value: .*greater than or equal to 1 .given: 0"),
        ({"generations": 2.5}, "stopper 'generations': value"),
        ({"win_rate": {"above": 0.9, "match": 3}}, "unknown key 'match'; did you mean 'matches'"),
        ({"win_rate": 1.0}, "less than 1"),
        ({"seconds": float("inf")}, "finite"),
        ({"nash_conv": -0.1}, "greater than or equal to 0"),
        ({"any": []}, "at least 1 item"),
        (
            {"no_improvement": {"evaluations": 1, "of": "luck"}},
            "of: Input should be 'scores', 'nash_conv' or 'win_rates'",
        ),
        ({}, "a stopper is a mapping such as {generations: 20}; given {}"),
        (20, "a stopper is a mapping such as {generations: 20}; given 20"),
        ({"ludus.core.errors:LudusError": 3}, "is not a stopper: it lacks"),
        ({f"{__name__}:Half": 3}, r"'test_stoppers:Half' is not a stopper: it lacks fraction\(\), limit\(\) \(see "),
        ({"no.such:Thing": 3}, "could not be imported"),
    ],
)
def test_stoppers_reject_invalid_settings(value, words):
    with pytest.raises(ConfigError, match=words):
        parse_stopper(value)


def test_unknown_inside_a_combination_stays_an_unknown_name():
    with pytest.raises(UnknownName):
        parse_stopper({"all": [{"any": [{"sekonds": 3}]}]})


class Odd(Config):
    """A user's own: stops at an odd number of updates of at least `least`."""

    setting: ClassVar[str] = "least"
    least: int

    def reason(self, progress: Progress) -> str | None:
        return "odd" if progress.updates >= self.least and progress.updates % 2 else None

    def fraction(self, progress: Progress) -> float | None:
        return None

    def limit(self, unit: str) -> int | None:
        return None


class Half(Config):
    """No stopper: it says why to stop, and neither how far it is nor how much there can be."""

    setting: ClassVar[str] = "least"
    least: int

    def reason(self, progress: Progress) -> str | None:
        return None


def test_a_stopper_of_ones_own():
    name = f"{__name__}:Odd"
    stopper = parse_stopper({"any": [{name: 4}, {"updates": 6}]})
    assert isinstance(stopper, Stopper)
    assert [u for u in range(8) if stopper.reason(Progress(updates=u))] == [5, 6, 7]
    assert dump_stopper(stopper) == {"any": [{name: 4}, {"updates": 6}]}


def test_fractions():
    def fraction(value, **record):
        return parse_stopper(value).fraction(Progress(**record))

    assert fraction({"episodes": 200}, episodes=50) == 0.25
    assert fraction({"episodes": 200}, episodes=500) == 1.0
    assert fraction({"seconds": 10}, seconds=4.0) == 0.4
    assert fraction({"nash_conv": 0.3}, nash_conv=(0.4,)) is None
    assert fraction({"episodes": 10, "seconds": 10, "nash_conv": 1}, episodes=2, seconds=5.0) == 0.5
    assert fraction({"all": [{"episodes": 10}, {"seconds": 10}]}, episodes=2, seconds=5.0) == 0.2
    assert fraction({"all": [{"episodes": 10}, {"nash_conv": 1}]}, episodes=2) is None
    assert fraction({"any": [{"nash_conv": 1}]}) is None


def test_limits():
    def limit(value, unit="episodes"):
        return parse_stopper(value).limit(unit)

    assert limit({"episodes": 200}) == 200
    assert limit({"episodes": 200}, "decisions") is None
    assert limit({"decisions": 7}, "decisions") == 7
    assert limit({"seconds": 3}) is None
    assert limit({"any": [{"seconds": 3}, {"seconds": 2.5}, {"episodes": 1}]}, "seconds") == 2.5
    assert limit({"nash_conv": 3}) is None
    assert limit({"any": [{"episodes": 5}, {"episodes": 3}, {"seconds": 1}]}) == 3
    assert limit({"all": [{"episodes": 5}, {"episodes": 3}]}) == 5
    assert limit({"all": [{"episodes": 5}, {"seconds": 1}]}) is None


@given(st.integers(1, 50), st.integers(0, 100))
def test_a_counter_is_finished_exactly_when_its_fraction_is_one(value, now):
    stopper, progress = parse_stopper({"updates": value}), Progress(updates=now)
    assert (stopper.reason(progress) is not None) == (stopper.fraction(progress) == 1.0)


def test_a_field_of_a_configuration():
    assert AnyOf(of=[{"nash_conv": 0.5}]).of == (NashConv(at_most=0.5),)
