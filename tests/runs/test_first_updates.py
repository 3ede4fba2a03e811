"""Responses that end before anything is learned: refused with what delays the first update, and advice that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import ScenarioError
from ludus.envs.registry import make_env
from ludus.runs.scenario import SelfPlay
from ludus.storage.reader import Reader

KUHN = "openspiel/kuhn_poker"
TINY = {"rollout_unit": "decisions", "rollout": 1, "batch": 4, "hidden": [4]}


def scenario(algorithm: dict[str, Any], decisions: int, cls: type[ludus.Scenario] = ludus.PSRO) -> ludus.Scenario:
    common = {"env": {"id": KUHN, "num_envs": 2, "tree": "off"}, "response": {"decisions": decisions}}
    return cls(
        **common, algorithm=algorithm, generations=2, evaluation={"payoffs": "simulate", "exploitability": "off"}
    )


def refusal(*given: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        scenario(*given).check(make_env(KUHN, num_envs=2, tree="off").spec)
    return str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "decisions", "delay", "advice"),
    [
        (
            {"kind": "dqn", **TINY, "min_size": 1},
            20,
            "(51: min_size=1, and 50 more at updates_per_decision=0.02)",
            "give decisions: 53 or more or algorithm.updates_per_decision=0.059 or more.",
        ),
        (
            {"kind": "r2d2", **TINY, "rollout": 5, "min_size": 40, "updates_per_decision": 0.03},
            60,
            "(74: min_size=40, and 34 more at updates_per_decision=0.03)",
            "give decisions: 76 or more, algorithm.updates_per_decision=0.056 or more or algorithm.min_size=24 or less.",
        ),
        (
            {"kind": "sac_discrete", **TINY, "start_decisions": 100},
            60,
            "(101: start_decisions=100, and 1 more at updates_per_decision=1)",
            "give decisions: 103 or more or algorithm.start_decisions=57 or less.",
        ),
        (
            {"kind": "nfsp", "min_size": 7, "best_response": {**TINY, "min_size": 90}},
            100,
            "the first update of its best response (140: best_response.min_size=90, and 50 more at "
            "best_response.updates_per_decision=0.02)",
            "give decisions: 142 or more, algorithm.best_response.updates_per_decision=0.125 or more or "
            "algorithm.best_response.min_size=48 or less.",
        ),
    ],
    ids=["dqn", "r2d2", "sac_discrete", "nfsp"],
)
def test_late_first_update_names_its_cause(algorithm: dict[str, Any], decisions: int, delay: str, advice: str) -> None:
    said = refusal(algorithm, decisions)
    assert said.startswith(
        f"response: {decisions} decisions are fewer than the algorithm {algorithm['kind']!r} collects before the first update"
    )
    assert delay in said
    assert said.endswith(advice)


def test_learners_that_go_on_from_task_to_task_have_them_all() -> None:
    said = refusal({"kind": "dqn", **TINY, "min_size": 60}, 40, SelfPlay)
    assert said.startswith("response: 40 decisions in each of 2 tasks are fewer than")
    assert said.endswith(
        "give decisions: 57 or more, algorithm.updates_per_decision=0.063 or more or algorithm.min_size=26 or less."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decisions", "change"),
    [(53, {}), (20, {"updates_per_decision": 0.059}), (62, {"min_size": 10})],
    ids=["decisions", "updates_per_decision", "min_size"],
)
def test_the_advice_works(decisions: int, change: dict[str, float], tmp_path: Path) -> None:
    """Each of what the first refusal above says, and the third of what it says of 62 decisions and min_size=40."""
    run = scenario({"kind": "dqn", **TINY, "min_size": 1, **change}, decisions)
    run = run.model_copy(update={"generations": 1})
    ludus.run(run, run_dir=tmp_path / "run", report=False)
    with Reader(tmp_path / "run") as reader:
        assert reader.summary().counters["updates"] >= 2  # of both players' policies
