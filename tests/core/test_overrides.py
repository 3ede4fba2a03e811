"""Overrides of one setting leave the others as they are, also those that the text leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from ludus.algorithms.common.config import Schedule
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.core.config import Config, override
from ludus.core.errors import ConfigError
from ludus.runs.scenario_files import load_scenario, parse_scenario


def algorithm(preset: str, *overrides: str) -> Any:
    return load_scenario(preset, list(overrides)).algorithm


@pytest.mark.parametrize(
    ("preset", "overrides", "rate"),
    [
        ("leduc", ("algorithm.learning_rate.start=0.02",), Schedule(start=0.02, end=0.0)),  # PPO falls to 0 by default
        ("leduc", ("algorithm.learning_rate.shape=cosine",), Schedule(start=0.01, end=0.0, shape="cosine")),
        ("leduc", ("algorithm.learning_rate=0.02",), Schedule(start=0.02)),  # a number is constant
        ("pendulum", ("algorithm.learning_rate.end=0.0001",), Schedule(start=0.001, end=0.0001)),  # a number there
        ("kuhn", ("algorithm=dqn", "algorithm.learning_rate.over=0.5"), Schedule(start=0.01, end=0.0005, over=0.5)),
        ("leduc", ("algorithm={kind: dqn}", "algorithm.learning_rate.end=0.0"), Schedule(start=0.01, end=0.0)),
    ],
)
def test_the_rest_of_a_schedule_stays(preset: str, overrides: tuple[str, ...], rate: Schedule) -> None:
    assert algorithm(preset, *overrides).learning_rate == rate


def test_a_schedule_that_is_none_by_default_is_given_whole() -> None:
    given = algorithm("pendulum", "algorithm.critic_learning_rate.start=0.1")
    assert given.critic_learning_rate == Schedule(start=0.1)


def test_a_number_for_a_schedule_that_is_none_by_default_is_its_start() -> None:
    given = algorithm("pendulum", "algorithm.critic_learning_rate=0.1", "algorithm.critic_learning_rate.end=0.0")
    assert given.critic_learning_rate == Schedule(start=0.1, end=0.0)
    with pytest.raises(ConfigError, match="critic_learning_rate: start: it is needed, and was not given"):
        algorithm("pendulum", "algorithm.critic_learning_rate.end=0.1")


def test_the_rest_of_nfsps_best_response_stays() -> None:
    usual = NFSP().best_response
    assert usual.epsilon == Schedule(start=0.06, end=0.0)
    changed = usual.model_copy(update={"batch": 100})
    assert NFSP(best_response={"batch": 100}).best_response == changed
    assert algorithm("leduc-nfsp", "algorithm.best_response.batch=100").best_response == changed
    assert parse_scenario(
        "{env: openspiel/kuhn_poker, algorithm: {kind: nfsp, best_response: {batch: 100}}}"
    ).algorithm == NFSP(best_response=changed)
    partly = "{env: openspiel/kuhn_poker, algorithm: {kind: nfsp, best_response: {hidden: [32], epsilon: 0.1}}}"
    given = parse_scenario(partly, ["algorithm.best_response.learning_rate.end=0.001"]).algorithm.best_response
    assert given.learning_rate == usual.learning_rate.model_copy(update={"end": 0.001})
    given = parse_scenario(partly, ["algorithm.best_response.epsilon.end=0.01"]).algorithm.best_response
    assert given.epsilon == Schedule(start=0.1, end=0.01)
    deeper = algorithm("leduc-nfsp", "algorithm.best_response.epsilon.start=0.1").best_response
    assert deeper == usual.model_copy(update={"epsilon": Schedule(start=0.1, end=0.0)})


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        ("algorithm: ppo", "algorithm.nonsense.start=3", "unknown key 'nonsense'"),
        ("algorithm: ppo", "algorithm.epochs.start=3", "epochs: Input should be a valid integer"),
        ("algorithm: ppo", "algorithm.epochs.a.b=3", "epochs: Input should be a valid integer"),
        ("algorithm: 3", "algorithm.epochs=3", "by name or as a mapping with `kind`"),
        ("algorithm: nobody", "algorithm.rate.start=3", "unknown algorithm 'nobody'"),
        ("algorithm: [ppo]", "algorithm.rate.start=3", "by name or as a mapping with `kind`"),
    ],
)
def test_override_of_a_setting_without_options_raises(text: str, change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_scenario(f"env: openspiel/kuhn_poker\n{text}", [change])


class Late(Config):
    """Its default depends on another option."""

    rate: Schedule = Schedule(start=1.0, end=0.5)


class Mine(A2C):
    width: float = 3.0
    late: Late = Field(default_factory=lambda data: Late(rate=Schedule(start=data["width"])))


def test_an_oracle_of_ones_own_has_defaults_too() -> None:
    text = "{env: openspiel/kuhn_poker, algorithm: test_overrides:Mine}"
    assert parse_scenario(text, ["algorithm.late.rate.start=2.0"]).algorithm.late.rate == Schedule(start=2.0, end=0.5)
    assert parse_scenario(text, ["algorithm.learning_rate.start=0.5"]).algorithm.learning_rate.start == 0.5


def test_a_kind_that_is_given_later_is_not_asked_for_before() -> None:
    text = "{env: openspiel/kuhn_poker, algorithm: {kind: pppo}}"
    changed = parse_scenario(text, ["algorithm.learning_rate.start=0.5", "algorithm.kind=ppo"]).algorithm
    assert changed == PPO(learning_rate=Schedule(start=0.5))


def test_where_nothing_is_known_only_what_is_given_is_there() -> None:
    assert override({"a": {"b": 3}, "e": "name"}, ["a.c.d=4", "e.f=5"]) == {
        "a": {"b": 3, "c": {"d": 4}},
        "e": {"kind": "name", "f": 5},
    }


def test_override_inside_a_list_raises() -> None:
    with pytest.raises(
        ConfigError, match=r"'warm_start.0.source=best' was given, and warm_start is a list.*warm_start=\[…\]"
    ):
        override({"warm_start": [{"source": "random"}]}, ["warm_start.0.source=best"])
