"""Names that stored runs have still name the same classes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from ludus.algorithms.common.registry import ALGORITHMS
from ludus.contrib.football.bots import FootballScript
from ludus.core.errors import ConfigError
from ludus.core.former_names import present_name
from ludus.core.parts import build_part, resolve_name


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("ludus.learners.ppo.options:PPO", "ludus.algorithms.ppo.config:PPO"),
        ("ludus.learners.sequential.options:HAPPO", "ludus.contrib.algorithms.sequential.config:HAPPO"),
        ("ludus.learners.options:ReplayOptions", "ludus.algorithms.common.config:ReplayOptions"),
        ("ludus.solvers.nash:Nash", "ludus.metagame.solvers.nash:Nash"),
        ("ludus.population.ratings.elo:OnlineElo", "ludus.metagame.population.ratings.online_elo:OnlineElo"),
        ("ludus.driver.scenario_kinds:PSRO", "ludus.runs.scenario:PSRO"),
        ("ludus.policies.football:FootballScript", "ludus.contrib.football.bots:FootballScript"),
        ("ludus.envs.adapters.vmas:VMASVectorEnv", "ludus.contrib.envs.vmas:VMASVectorEnv"),
        ("ludus.learners.matrices:A", "ludus.algorithms.matrices:A"),
        ("ludus.drivers:A", "ludus.drivers:A"),
        ("mine.ludus.learners.ppo:PPO", "mine.ludus.learners.ppo:PPO"),
    ],
)
def test_former_names(before: str, now: str) -> None:
    assert present_name(before) == now
    assert present_name(now) == now


def test_parts_are_built_by_their_former_names() -> None:
    part = build_part("algorithm", {"kind": "ludus.learners.dqn.options:DQN", "batch": 64}, ALGORITHMS)
    assert (type(part).__module__, part.batch) == ("ludus.algorithms.dqn.config", 64)
    assert resolve_name("bot", "ludus.policies.football:FootballScript", {}) is FootballScript
    assert importlib.util.find_spec(present_name("ludus.learners.on_policy.in_place")) is not None


def test_own_code_that_imports_a_former_name_hears_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imports_former_name.py").write_text("from ludus.learners.elsewhere import PPO\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'ludus.learners[\w.]*' is now 'ludus.algorithms"):
        resolve_name("algorithm", "imports_former_name:PPO", {})
    sys.modules.pop("imports_former_name", None)
