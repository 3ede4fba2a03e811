"""Every kind of scenario: a small run of it, the same again, and after a kill."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import run_tools as tools

from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.algorithms.common.config import Budget
from ludus.core.config import as_stored, to_yaml
from ludus.core.errors import ConfigError, LudusError, ScenarioError
from ludus.core.parts import resolve_name, with_options
from ludus.core.types import PolicyRef, TrainingTask
from ludus.runs.runner import resume, run
from ludus.runs.scenario import PSRO, SCENARIOS
from ludus.runs.scenario_check import check_vector
from ludus.runs.scenario_files import load_scenario, parse_scenario
from ludus.storage.reader import Reader
from ludus.storage.stored_run import open_run
from ludus.training.trainer import LearnResult, Trainer
from ludus.training.training import Training

COMMON = """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4]}
response: {episodes: 96}
generations: 3
checkpoints: {iterations: 2}
"""
KINDS: dict[str, dict[str, object]] = {
    "anytime_psro": {},
    "efficient_psro": {"levels": 2},
    "fictitious_self_play": {},
    "fixed_opponents": {"learners": [0, 1]},
    "league": {
        "main_exploiters": 1,
        "league_exploiters": 1,
        "rules": {"kind": "alphastar", "least": 1, "most": 2},
        "decay": 0.5,
    },
    "neupl": {"policies": 2},
    "odo": {"rounds": 5},
    "pbt": {"learners": 3, "ranges": {"learning_rate": {"low": 1e-3, "high": 1e-1}}},
    "pfsp": {"weighting": "linear"},
    "pipeline_psro": {"levels": 2, "most": 2},
    "psro": {"order": "sequential"},
    "self_play": {"latest": 0.5, "past": "prioritised"},
    "self_play_psro": {},
    "xdo": {"algorithms": {"meta": {"kind": "mmd", "batch": 32, "epochs": 1, "hidden": [4]}}},
}
GAINED = {"efficient_psro": 4, "league": 6, "pbt": 6, "self_play_psro": 4, "xdo": 4, "neupl": 5}
"""Policies that each population gains in two generations; 2 by default."""


def text(kind: str) -> str:
    return f"scenario: {kind}\n{COMMON}{to_yaml(KINDS[kind]) if KINDS[kind] else ''}"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools find these scenarios by their kinds."""
    monkeypatch.setattr(tools, "SCENARIOS", {kind: text(kind) for kind in KINDS})


def test_every_kind_is_here() -> None:
    assert KINDS.keys() == SCENARIOS.keys()
    assert all(resolve_name("scenario", name, SCENARIOS).kind == name for name in SCENARIOS)


class Mine(PSRO):
    """A kind of one's own."""

    extra: int = 1


def test_a_kind_of_ones_own_is_named_by_its_class() -> None:
    mine = Mine(env="openspiel/kuhn_poker", extra=2)
    assert mine.kind == "test_kinds:Mine"
    assert parse_scenario(mine.to_yaml()) == mine


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_run_of_it(kind: str, tmp_path: Path) -> None:
    scenario = tools.scenario(kind)
    assert parse_scenario(scenario.to_yaml()) == scenario
    tools.train(kind, tmp_path / "run", "generations=2")
    with Reader(tmp_path / "run") as reader:
        records, policies, summary = reader.generations(), reader.policies(), reader.summary()
    for marginals in (record.marginals for record in records):
        assert all(np.isclose(sum(m), 1.0) for m in marginals)
    assert all(record.nash_conv is not None and np.isfinite(record.nash_conv) for record in records)
    if kind == "pipeline_psro":  # levels end when they no longer improve
        assert len(policies) > 2 * 2
        return
    assert records[-1].number == 2
    assert len(policies) == 2 * (1 + GAINED.get(kind, 2))
    if kind == "neupl":
        assert summary is not None
        assert summary.trained == 2 * 2  # rows that are saved were not trained apart
        told = [open_run(tmp_path / "run").policy(PolicyRef(0, f"0-2-{row}")).weights()["condition"] for row in (1, 2)]
        assert told[0].tolist() == [[1.0, 0.0, 0.0]]  # the first answers the random policy, the second the first, too
        assert told[1][0, 1] > 0.0
        assert told[1].sum() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"pfsp", "psro", "self_play"}))
def test_killed_and_resumed(kind: str, tmp_path: Path) -> None:
    """The others: in test_kill_and_resume."""
    tools.Whole(tmp_path).check_kills(kind, tmp_path, kills=1)


def test_kinds_reject_invalid_settings() -> None:
    other = tools.scenario("pbt", "ranges={learningrate: {low: 1.0, high: 2.0}}")
    with pytest.raises(ConfigError, match="no option 'learningrate'"):
        other.check(other.env.make(num_envs=2).spec)
    with pytest.raises(ConfigError, match="unknown key 'lates'"):
        parse_scenario(text("self_play") + "lates: 0.5\n")
    with pytest.raises(ConfigError, match="is no class of scenarios"):
        parse_scenario(COMMON + "scenario: ludus.core.types:Mixture\n")
    with pytest.raises(ConfigError, match="rectified_nash solves as nash does"):
        parse_scenario(COMMON, ["meta_solver=rectified_nash"])
    parse_scenario(COMMON, ["meta_solver=rectified_nash", "responses=rectified"])
    with as_stored():
        parse_scenario(COMMON, ["meta_solver=rectified_nash"])
    three = parse_scenario(
        COMMON.replace("kuhn_poker", "kuhn_poker(players=3)"), ["responses=rectified", "meta_solver=uniform"]
    )
    with pytest.raises(ScenarioError, match="'rectified' are for two players"):
        three.check(three.env.make(num_envs=3).spec)
    shared = parse_scenario(
        COMMON.replace("kuhn_poker", "kuhn_poker(players=3)"),
        ["responses=recommended", "meta_solver=ce", "share=always"],
    )
    with pytest.raises(ScenarioError, match="'recommended' are trained in one seat"):
        shared.check(shared.env.make(num_envs=3).spec)


@pytest.mark.parametrize(
    ("changes", "gained"),
    [
        (["responses=recommended", "meta_solver=ce"], 3),
        (["responses=recommended", "meta_solver=ce", "share=always", "algorithm=exact"], 3),
        (["responses=preference", "meta_solver=alpha_rank"], 3),
        (["responses={kind: sequential_league, first: exploiter}", "meta_solver=nash"], 3),
    ],
)
def test_a_run_of_other_responses(changes: list[str], gained: int, tmp_path: Path) -> None:
    tools.train("psro", tmp_path / "run", *changes)
    with Reader(tmp_path / "run") as reader:
        records, policies = reader.generations(), reader.policies()
    assert records[-1].number == 3
    populations = {policy.record.ref.population for policy in policies}
    assert len(policies) >= len(populations) * (1 + gained)  # a correlated equilibrium may recommend several policies
    assert all(record.nash_conv is not None and np.isfinite(record.nash_conv) for record in records)


@pytest.mark.parametrize("solver", ["nash_bimatrix", "uniform", "alpha_rank"])
def test_recommendations_without_a_joint_meta_strategy_are_refused_at_once(solver: str) -> None:
    scenario = parse_scenario(text("psro"), ["responses=recommended", f"meta_solver={solver}"])
    spec = scenario.env.make(num_envs=1).spec
    with pytest.raises(ScenarioError, match=f"'recommended' need .* joint distribution; '{solver}' gives"):
        scenario.check(spec)
    for joint in ("ce", "cce", "nash_bargaining", "{kind: alpha_rank, answer: joint}"):
        parse_scenario(text("psro"), ["responses=recommended", f"meta_solver={joint}"]).check(spec)


def test_learners_of_pbt_have_options_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    init = Training.__init__

    def spy(self: Training, task: TrainingTask, **options: Any) -> None:
        rates.append((task.overrides["learning_rate"], options["algorithm"].learning_rate.at(0.0)))
        init(self, task, **options)

    monkeypatch.setattr(Training, "__init__", spy)
    tools.train("pbt", tmp_path / "run", "generations=2")
    assert len(rates) == 2 * 2 * 3
    assert all(given == used for given, used in rates)
    assert len({given for given, _ in rates}) > 3
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        with_options(tools.scenario("psro").algorithm, {"learningrate": 0.1})


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("self_play", ["algorithm=exact"], "meet others that still learn"),
        ("league", ["algorithm=exact"], "meet others that still learn"),
        ("pfsp", ["latest=1", "opponents=[random]"], "opponents were given, and with latest=1"),
        (
            "anytime_psro",
            ["responses=sequential_league", "begin=last"],
            "'sequential_league' say whom not to meet, and here each meets all members",
        ),
        ("anytime_psro", ["rule=hegde"], "did you mean 'hedge'"),
        ("anytime_psro", ["diversity=response"], "'response' moves the opponents of a response, which this"),
        ("efficient_psro", ["algorithm=exact"], "in an efficient_psro scenario policies meet others that still learn"),
        ("efficient_psro", ["rule=hegde"], "did you mean 'hedge'"),
        (
            "efficient_psro",
            ["evaluation.payoffs=simulate", "evaluation.adaptive={budget: 100}"],
            "plays no match for payoffs, so that evaluation.adaptive would do nothing",
        ),
        ("efficient_psro", ["diversity=response"], "'response' moves the opponents of a response, which this"),
        ("efficient_psro", ["warm_start=best"], "efficient PSRO has none"),
        ("efficient_psro", ["env.id=openspiel/kuhn_poker(players=3)", "env.num_envs=9"], "this game has 3"),
        (
            "odo",
            ["env.id=openspiel/kuhn_poker(players=3)", "env.num_envs=9"],
            "odo is for two players; this game has 3",
        ),
        ("odo", ["env.id=openspiel/tiny_hanabi"], "odo is for zero-sum games; .* is general-sum"),
        (
            "xdo",
            ["env.id=openspiel/kuhn_poker(players=3)", "env.num_envs=9"],
            "xdo is for two players; this game has 3",
        ),
        ("xdo", ["env.id=openspiel/tiny_hanabi"], "xdo is for zero-sum games; .* is general-sum"),
        ("xdo", ["algorithms.response=exact"], "one has tables and the other networks"),
        (
            "xdo",
            ["algorithms.response={kind: ppo, memory: gru}"],
            "picks from policies that say how likely each action is",
        ),
        ("xdo", ["algorithms.meta=apex"], "explores otherwise than by chances of picks"),
        ("xdo", ["algorithms.meta={kind: dqn, epsilon_spread: 7}"], "explores otherwise than by chances of picks"),
        ("xdo", ["algorithms.meta={kind: ppo, memory: gru}"], "explores otherwise than by chances of picks"),
        (
            "xdo",
            ["algorithms.meta={kind: dqn, priority_exponent: 0.6, initial_priority: error}"],
            r"from more than what was picked \(taken, best\)",
        ),
        ("xdo", ["algorithms={mata: exact}"], "did you mean 'meta'"),
        ("psro", ["diversity=behavioral"], "did you mean 'behavioural'"),
        ("psro", ["algorithm=dqn", "diversity=behavioural"], "algorithm 'dqn' has no term for behavioural diversity"),
        (
            "psro",
            ["algorithm=exact", "diversity=behavioural"],
            "algorithm 'exact' has no term for behavioural diversity",
        ),
        ("psro", ["algorithm=exact", "diversity=response"], "'exact' computes it at once"),
        ("psro", ["meta_solver={kind: nash_bargaining, disagreement: [0, 0, 0]}"], "3 numbers; the game has 2 players"),
        (
            "pipeline_psro",
            ["meta_solver={kind: alpha_rank, model: single_population}"],
            "needs two players of one population",
        ),
        ("anytime_psro", ["rule_options={explore: 7}"], "explore is 7"),
        ("self_play_psro", ["meta_solver=ce", "responses=recommended"], "announced here is the mean of each player's"),
        ("pbt", ["ranges={clip: {low: -1.0, high: 0.5, log: false}}"], "clip"),
        ("pbt", ["span=[1, -1]"], r"win rates need the returns of a defeat and of a victory; given \[\(1.0, -1.0\)"),
        ("league", ["span=[1, 1]"], "win rates need the returns of a defeat"),
        ("pfsp", ["span=[1, 1]"], "win rates need the returns of a defeat"),
        ("self_play", ["span=[1, 1]", "latest=0.5", "past=quality"], "win rates need the returns of a defeat"),
        ("fixed_opponents", ["learners=[3]"], "learners are populations"),
        ("self_play", ["start=nowhere.safetensors"], "nowhere.safetensors"),
        ("psro", ["scenario=self_pley"], "did you mean 'self_play'"),
    ],
)
def test_refused_before_anything_is_written(kind: str, changes: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=message):
        tools.train(kind, tmp_path / "run", *changes)
    assert not (tmp_path / "run").exists()


def test_the_kind_is_an_override_too(tmp_path: Path) -> None:
    assert parse_scenario("scenario: psro\n" + COMMON, ["scenario=self_play", "latest=0.5"]).kind == "self_play"
    nash = "scenario: psro\nmeta_solver: nash\n" + COMMON
    assert parse_scenario(nash, ["scenario=fixed_opponents"]).kind == "fixed_opponents"  # which has no use for a solver
    with pytest.raises(ConfigError, match="unknown key 'meta_solver'"):
        parse_scenario(nash, ["scenario=fixed_opponents", "meta_solver=nash"])
    with pytest.raises(ConfigError, match="unknown key 'meta_solvr'"):
        parse_scenario(nash.replace("solver", "solvr"), ["scenario=fixed_opponents"])
    tools.train("fictitious_self_play", tmp_path / "run", "generations=1")
    with pytest.raises(ScenarioError, match="kind='pfsp' was given"):
        resume(tmp_path / "run", ["scenario=pfsp"])


@pytest.mark.parametrize(
    ("kind", "change", "members"),
    [
        ("efficient_psro", "levels=1", ["0-0", "0-1-1", "0-1-2", "0-2"]),
        ("self_play", "latest=0", ["0-0", "0-1", "0-2"]),
    ],
)
def test_concurrent_learners_end_together(kind: str, change: str, members: list[str], tmp_path: Path) -> None:
    """Where the run goes on with an option by which later tasks would not: it holds from the next generation."""
    observer = tools.Impatient(7)
    run(tools.scenario(kind), run_dir=tmp_path, observer=observer, stop=observer.stop, report=False)
    assert len(tools.state_of(tmp_path)["scheduler"]["tasks"]["groups"][0]) > 1
    resume(tmp_path, [change, "generations=2"], report=False)
    with Reader(tmp_path) as reader:
        names = [policy.record.ref.policy for policy in reader.policies() if policy.record.ref.population == 0]
    assert names == members


def test_a_learner_that_goes_on_comes_from_its_last_snapshot(tmp_path: Path) -> None:
    tools.train("self_play", tmp_path / "run")
    with Reader(tmp_path / "run") as reader:
        records = [policy.record for policy in reader.policies() if policy.record.ref.population == 1]
    parents = [record.lineage.parent and record.lineage.parent.policy for record in records]
    assert parents == [None, None, "1-1", "1-2"]
    assert [record.lineage.start for record in records] == ["random", "random", "policy", "policy"]


def test_the_order_of_responses_stays(tmp_path: Path) -> None:
    tools.train("psro", tmp_path / "run", "generations=1")
    with pytest.raises(ScenarioError, match="order='simultaneous' was given; the run has 'sequential'"):
        resume(tmp_path / "run", ["generations=2", "order=simultaneous"])


def test_learners_that_go_on_keep_their_oracle(tmp_path: Path) -> None:
    tools.train("self_play", tmp_path / "run", "generations=1")
    before = tools.files_of(tmp_path / "run")
    with pytest.raises(ScenarioError, match="another algorithm was given"):
        resume(tmp_path / "run", ["generations=2", "algorithm=tabular_q"])
    assert tools.files_of(tmp_path / "run") == before


def test_a_solver_that_reads_payoffs_gets_them(tmp_path: Path) -> None:
    tools.train("self_play", tmp_path / "run", "meta_solver=nash", "generations=2")
    with Reader(tmp_path / "run") as reader:
        assert len(reader.generations()[-1].marginals[0]) == 3


def test_greedy_self_play_is_scored_in_the_background(tmp_path: Path) -> None:
    background = "evaluation.background={every: 1, episodes: 8, num_envs: 4}"
    tools.train(
        "self_play",
        tmp_path / "run",
        "mode=greedy",
        "share=auto",
        "env.id=openspiel/blotto(coins=3,fields=2)",
        background,
    )


def test_a_learner_that_failed_stays_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the run goes on from a checkpoint that was taken after it (in step, the others still train)."""
    learn = Trainer.learn

    def fails(self: Trainer, *args: Any, version: int, **more: Any) -> LearnResult:
        if self._task == "chunk-0-1" and version == 2:
            return LearnResult(failure="it burst")
        return learn(self, *args, version=version, **more)

    monkeypatch.setattr(Trainer, "learn", fails)
    whole = tmp_path / "whole"
    tools.train("self_play", whole, "latest=1.0", "generations=1")
    stop = tools.Impatient(8)  # in the third round, after the barrier of the second
    run_dir = tmp_path / "run"
    run(
        tools.scenario("self_play", "latest=1.0", "generations=1"),
        run_dir=run_dir,
        observer=stop,
        stop=stop.stop,
        report=False,
    )
    monkeypatch.setattr(Trainer, "learn", learn)
    resume(run_dir, report=False)
    assert tools.policies_of(run_dir) == tools.policies_of(whole)


def test_a_response_whose_seconds_are_few_is_cut_short_and_says_so(tmp_path: Path) -> None:
    options = ["algorithm={kind: ppo, batch: 1000000, hidden: [4], epochs: 1}", "response={seconds: 0.05}"]
    tools.train("psro", tmp_path / "run", *options, "generations=1")
    with Reader(tmp_path / "run") as reader:
        event, other = [event for event in reader.events() if event.kind == "few_updates"]
        assert 0 < reader.summary().episodes < 1_000_000
    assert re.fullmatch(
        r"task response-0-1 ended after [\d,]+ decisions and only 1 update of policy 0-1\. Let .*",
        event.text,
    )
    assert (event.level, other.level) == ("warning", "info")  # of two responses it is shown once
    tools.train("psro", tmp_path / "asked", "response={updates: 1}", "generations=1")
    with Reader(tmp_path / "asked") as reader:
        assert [event.kind for event in reader.events()] == ["schedule"]


def test_schedule_that_never_moves_is_warned_of(tmp_path: Path) -> None:
    """Nothing says over how many decisions epsilon is to fall."""
    options = [
        "algorithm={kind: dqn, rollout: 20, hidden: [4], min_size: 20, batch: 4}",
        "response={updates: 2}",
        "generations=1",
    ]
    tools.train("psro", tmp_path / "run", *options)
    with Reader(tmp_path / "run") as reader:
        (event,) = reader.events()
    assert (event.kind, event.level) == ("schedule", "warning")
    assert event.text.startswith("these stay at their start: algorithm.")
    assert "algorithm.epsilon at 1. They change over the episodes of a training" in event.text
    assert "Add `response.episodes`" in event.text


@pytest.mark.parametrize("unit", ["episodes", "decisions"])
def test_schedules_follow_the_unit_that_response_limits(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts count decisions here; `response` may count episodes."""
    budgets, budget_of = list[Budget](), Budget.of

    def record(collect: CollectConfig, context: LearnerContext) -> Budget:
        budgets.append(budget_of(collect, context))
        return budgets[-1]

    monkeypatch.setattr(Budget, "of", staticmethod(record))
    algorithm = "algorithm={kind: ppo, batch_unit: decisions, batch: 50, hidden: [4], epochs: 1, learning_rate: {start: 0.5, end: 0}}"
    tools.train("psro", tmp_path / "run", algorithm, f"response={{{unit}: 100}}", "generations=1")
    assert [(budget.unit, budget.total, budget.progress) for budget in budgets] == [(unit, 100, 1.0)] * 2
    with Reader(tmp_path / "run") as reader:
        assert [event.text for event in reader.events() if event.kind == "schedule"] == []


def test_a_task_without_an_update_says_so(tmp_path: Path) -> None:
    """How many decisions its episodes would have was not known beforehand."""
    options = ["algorithm={kind: dqn, rollout: 20, hidden: [4]}", "response={episodes: 20}", "generations=1"]
    tools.train("psro", tmp_path / "run", *options)
    with Reader(tmp_path / "run") as reader:
        events = reader.events()
    assert [(event.kind, event.level) for event in events] == [("no_update", "warning"), ("no_update", "info")]
    assert re.match(
        r"task response-0-1 ended after \d+ decisions without an update: policy 0-1 is what", events[0].text
    )
    tools.train(
        "psro",
        tmp_path / "longer",
        *options,
        "algorithm.min_size=10",
        "algorithm.updates_per_decision=1",
        "algorithm.batch=8",
    )
    with Reader(tmp_path / "longer") as reader:
        assert not reader.events()


def test_a_list_of_states_is_no_tree() -> None:
    """Of an environment that lists its information states, and has no game behind them."""
    scenario = load_scenario("kuhn")
    env = scenario.env.make(num_envs=1)
    check_vector(scenario, env)
    listed = SimpleNamespace(spec=env.spec, tree=None)
    with pytest.raises(ScenarioError, match="which needs a game's tree, and openspiel/kuhn_poker has none here"):
        check_vector(scenario, listed)  # type: ignore[arg-type]
