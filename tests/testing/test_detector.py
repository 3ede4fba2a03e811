"""Detectors find planted faults, and nothing in environments that are right."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from faulty_environments import FAULTS, RIGHT

from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.testing.detector.detect import detect
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.session import Budget
from ludus.testing.env import run_checks

BUDGET = Budget(seconds=60.0, episodes=250, longest=600)
SOME = ("a mask that is too wide", "vector rewards", "observations that are no numbers")
"""Those that are soon detected."""


def make(environment: Environment, num_envs: int) -> VectorEnv:
    return environment.make(num_envs=num_envs)


def findings(environment: Environment, budget: Budget = BUDGET) -> list[Finding]:
    return list(detect(partial(make, environment), budget=budget))


def failures(environment: Environment) -> set[str]:
    return {check.name for check in run_checks(partial(make, environment), steps=60) if check.failure is not None}


def slow_but(names: Iterable[str], fast: Iterable[str]) -> list[Any]:
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 24
    assert len({kind for kind, _, _ in FAULTS.values()}) == len(FAULTS)
    assert len(RIGHT.own) + len(RIGHT.ids) >= 10


@pytest.mark.parametrize("name", slow_but(FAULTS, SOME))
def test_a_planted_fault_is_detected(name: str) -> None:
    kind, options, expected = FAULTS[name]
    environment = Environment.model_validate({"source": kind, "options": options})
    observed = findings(environment)
    if not {one.check for one in observed} & expected:
        assert failures(environment) & expected
    for one in observed:
        assert one.sentence.endswith((".", ")")) or one.check in ("random play", "descriptions")
        assert json.loads(json.dumps(one.evidence)) == one.evidence


@pytest.mark.slow
@pytest.mark.parametrize("wrappers", [[{"kind": "frame_stack", "k": 2}], [{"kind": "time_limit", "steps": 12}]])
def test_masked_actions_are_played_below_wrappers(wrappers: list[dict[str, Any]]) -> None:
    kind, _, expected = FAULTS["a mask that is too narrow"]
    observed = findings(Environment.model_validate({"source": kind, "wrappers": wrappers}))
    assert {one.check for one in observed} & expected


@pytest.mark.slow
def test_what_a_wrapper_rules_out_is_no_fault_of_the_mask() -> None:
    kind, options = RIGHT.own["a grid without chance"]
    wrappers = [{"kind": "mask_actions", "allowed": [0, 1]}]
    observed = findings(Environment.model_validate({"source": kind, "options": options, "wrappers": wrappers}))
    assert "masked actions" not in {one.check for one in observed}


@pytest.mark.parametrize("name", slow_but(RIGHT.own, ()))
def test_nothing_is_wrong_with_own_environments(name: str) -> None:
    kind, options = RIGHT.own[name]
    environment = Environment.model_validate({"source": kind, "options": options})
    assert [one for one in findings(environment) if one.severity != "note"] == []
    assert not failures(environment)


@pytest.mark.parametrize("id", slow_but(RIGHT.ids, ("openspiel/kuhn_poker",)))
def test_nothing_is_wrong_with_shipped_environments(id: str) -> None:
    observed = findings(Environment(id=id), Budget(seconds=60.0, episodes=80, longest=600))
    assert [one for one in observed if one.severity != "note"] == []
