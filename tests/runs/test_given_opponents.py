"""Training against policies of other runs and of files: whole runs, and what is refused before one is made."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

import ludus
from ludus.apps.experiments.experiment import new_experiment
from ludus.apps.experiments.sweep import Sweep
from ludus.cli.main import main
from ludus.core.errors import ConfigError, LudusError, RunError, ScenarioError
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.actor_critic import initial_weights as gru_weights
from ludus.policies.file import load_policy, save_policy
from ludus.policies.specs import gru_spec
from ludus.runs.assembly import read_opponents
from ludus.runs.runner import resume
from ludus.runs.scenario import FixedOpponents
from ludus.runs.scenario_files import load_scenario, with_files
from ludus.storage.stored_run import StoredRun

BLOTTO = "openspiel/blotto(coins=3,fields=2)"
KUHN = "openspiel/kuhn_poker"
LEARNS = """
scenario: fixed_opponents
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [4]}
response: {episodes: 96}
generations: 2
checkpoints: {iterations: 2}
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Who is given: a run "one" (PSRO with exact responses, 3 generations) and the file "bet.safetensors", who always bets."""
    folder = tmp_path_factory.mktemp("old")
    ludus.run(ludus.PSRO(env=KUHN, algorithm="exact", generations=3), run_dir=folder / "one", report=False)
    tools.always(1, folder / "bet.safetensors")
    return folder


def train(folder: Path, *opponents: object, **options: object) -> ludus.Result:
    scenario = FixedOpponents(**{"env": KUHN, "algorithm": "exact", "opponents": opponents, **options})
    return ludus.run(scenario, run_dir=folder, report=False)


def names(result: ludus.Result) -> list[list[str]]:
    return [[record.ref.policy for record in members] for members in result.populations]


# ---------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("learners", [(0, 1), (0,)])
def test_the_exact_response_to_one_who_always_bets(old: Path, tmp_path: Path, learners: tuple[int, ...]) -> None:
    """The king wins two, the queen wins two or loses two, the jack folds: in either seat (2 + 0 - 1) / 3."""
    result = train(tmp_path / "run", str(old / "bet.safetensors"), learners=learners)
    assert names(result)[0] == ["0-0", "file.bet", "0-1"]
    assert result.generations[-1].responses[0] == pytest.approx(1 / 3)
    assert result.payoffs.mean[0, 2, 1] == pytest.approx(1 / 3)
    if learners == (0, 1):
        assert names(result)[1] == ["1-0", "file.bet", "1-1"]
        assert result.generations[-1].responses[1] == pytest.approx(1 / 3)
        assert [list(m) for m in result.generations[0].marginals] == [[1.0, 0.0]] * 2
        assert [list(m) for m in result.generations[1].marginals] == [[0.0, 0.0, 1.0]] * 2
    else:
        assert [list(m) for m in result.generations[1].marginals] == [[0.0, 0.0, 1.0], [0.0, 1.0]]
        assert result.generations[-1].values == pytest.approx((1 / 3, -1 / 3))


def test_a_learned_response_comes_close(old: Path, tmp_path: Path) -> None:
    result = train(
        tmp_path / "run",
        str(old / "bet.safetensors"),
        env={"id": KUHN, "num_envs": 256},
        algorithm={"kind": "ppo", "batch": 1024, "learning_rate": 0.01, "hidden": [16]},
        response={"episodes": 10_000},
    )
    assert 1 / 3 - 0.02 < result.generations[-1].responses[0] < 1 / 3 + 1e-9


def test_against_a_runs_nash_mixture_and_a_file(old: Path, tmp_path: Path) -> None:
    """Weights of a run's mixture, and of entries: 1 for the run and 3 for the file."""
    run = StoredRun(old / "one")
    tree = compile_tree("kuhn_poker")
    shares = run.solution.strategies[1]
    kept = [(record, share) for record, share in zip(run.members[1], shares, strict=False) if share > 0]
    assert len(kept) > 2
    plans = {r.ref.policy: tree.realization(1, run.policy(r.ref).tabulate(tree.enumeration, 1)) for r, _ in kept}
    meta = sum(share * plans[record.ref.policy] for record, share in kept)
    best, _ = tree.best_response(0, [None, meta])
    result = train(tmp_path / "run", str(old / "one"))
    assert result.generations[-1].responses[0] == pytest.approx(best)
    assert names(result)[1] == ["1-0", "one.1-1", "one.1-2"]  # 1-3 is 1-2 again, and joins once

    enumeration = tree.enumeration
    bets = tree.realization(1, load_policy(old / "bet.safetensors").tabulate(enumeration, 1))
    best, _ = tree.best_response(0, [None, 0.25 * meta + 0.75 * bets])
    entries = [str(old / "one"), {"policy": str(old / "bet.safetensors"), "weight": 3}]
    result = train(tmp_path / "both", *entries)
    assert result.generations[-1].responses[0] == pytest.approx(best)
    place = names(result)[1].index("file.bet")
    assert result.generations[-1].marginals[1][place] == pytest.approx(0.75)


def test_one_policy_that_is_named_twice_joins_once(old: Path, tmp_path: Path) -> None:
    result = train(
        tmp_path / "run", f"{old}/one@1/1-1", {"policy": f"{old}/one/policies/1/1-1.safetensors", "weight": 2}, "random"
    )
    assert names(result) == [["0-0", "0-1"], ["1-0", "one.1-1"]]
    np.testing.assert_allclose(result.generations[-1].marginals[1], [0.25, 0.75])


def test_members_keep_their_modes_and_say_where_they_were(old: Path, tmp_path: Path) -> None:
    result = train(tmp_path / "run", f"{old}/one@1/1-2", f"{old}/bet.safetensors", mode="explore")
    first, second = (record for record in result.populations[1][1:])
    assert (first.ref.policy, first.ref.mode) == ("one.1-2", StoredRun(old / "one").members[1][2].ref.mode)
    assert first.ref.mode == "greedy"
    assert (second.ref.policy, second.ref.mode) == ("file.bet", "explore")
    assert first.lineage.start == str(old / "one/policies/1/1-2.safetensors")
    assert second.lineage.start == f"{old}/bet.safetensors"


def test_played_payoffs_are_those_against_the_opponents(old: Path, tmp_path: Path) -> None:
    """Nobody asks what opponents earn against each other."""
    result = train(
        tmp_path / "run",
        f"{old}/bet.safetensors",
        "random",
        env={"id": KUHN, "num_envs": 16},
        algorithm={"kind": "tabular_q", "batch": 64},
        response={"episodes": 500},
        evaluation={"payoffs": "simulate", "episodes": 200},
    )
    counts = result.payoffs.count
    assert names(result) == [["0-0", "file.bet", "0-1"], ["1-0", "file.bet"]]
    assert counts.tolist() == [[200, 200], [0, 0], [200, 200]]
    earned = result.payoffs.mean[0, 2]
    assert result.generations[-1].values[0] == pytest.approx(earned.mean())
    assert abs(earned[1] - result.generations[-1].responses[0]) < 1.5


# ---------------------------------------------------------------------------------------------- other games


def test_players_who_share_a_population_meet_what_the_seat_was_given(tmp_path: Path) -> None:
    """Policies of one seat each, which can play the other one too."""
    small = {"kind": "ppo", "batch": 32, "epochs": 1, "hidden": [4]}
    apart = ludus.PSRO(env=BLOTTO, algorithm=small, response={"episodes": 64}, generations=2, share="never")
    ludus.run(apart, run_dir=tmp_path / "apart", report=False)
    result = train(tmp_path / "run", f"{tmp_path}/apart@newest", env=BLOTTO)
    assert names(result) == [["0-0", "apart.0-2", "apart.1-2", "0-1"]]
    with pytest.raises(ScenarioError, match=r"nobody was given for seat 1 of .*apart@0/0-2' plays seat 0\)"):
        train(tmp_path / "half", f"{tmp_path}/apart@0/0-2", env=BLOTTO)
    env = make_env(BLOTTO, num_envs=1)
    scenario = FixedOpponents(env=BLOTTO, algorithm="exact", opponents=f"{tmp_path}/apart@newest")
    found = read_opponents(scenario, env.spec)
    assert found is not None
    assert [[ref.policy for (ref,) in f.entries] for f in found.mixture.factors] == [["apart.0-2"], ["apart.1-2"]]


def test_a_member_of_a_shared_population_plays_all_its_seats(old: Path, tmp_path: Path) -> None:
    """A table of player 0 alone has no row for player 1."""
    with pytest.raises(
        ScenarioError, match=r"one 0-\d' cannot play seat 1 of .*population 0 play seats 0, 1; share=never"
    ):
        train(tmp_path / "run", f"{old}/one", share="always")
    assert not (tmp_path / "run").exists()


def test_three_players(tmp_path: Path) -> None:
    three = "openspiel/kuhn_poker(players=3)"
    ludus.run(ludus.PSRO(env=three, algorithm="exact", meta_solver="uniform", generations=1), run_dir=tmp_path / "old")
    with pytest.raises(ScenarioError, match=r"nobody was given for seat 2 of .* \(.*old@1/1-1' plays seat 1\)"):
        train(tmp_path / "lacks", f"{tmp_path}/old@1/1-1", env=three)
    with pytest.raises(
        ScenarioError, match=r"old@0/0-1' plays seat 0, where the learners meet nobody; .* in seats 1, 2"
    ):
        train(tmp_path / "useless", f"{tmp_path}/old@0/0-1", "random", env=three)
    result = train(tmp_path / "run", f"{tmp_path}/old@1/1-1", "random", env=three)
    assert names(result) == [["0-0", "0-1"], ["1-0", "old.1-1"], ["2-0"]]
    np.testing.assert_allclose(result.generations[-1].marginals[1], [0.5, 0.5])
    np.testing.assert_allclose(result.generations[-1].marginals[2], [1.0])
    tree = compile_tree("kuhn_poker(players=3)")
    uniform = [tree.realization(p, tree.uniform(p)) for p in range(3)]
    mine = tree.realization(1, load_policy(tmp_path / "old/policies/1/1-1.safetensors").tabulate(tree.enumeration, 1))
    best, _ = tree.best_response(0, [None, 0.5 * uniform[1] + 0.5 * mine, uniform[2]])
    assert result.generations[-1].responses[0] == pytest.approx(best)


# ---------------------------------------------------------------------------------------------- going on


def learns(run_dir: Path, old: Path, *changes: str, **options: object) -> None:
    scenario = tools.parse_scenario(LEARNS, [f"opponents=[{old}/one, {old}/bet.safetensors]", *changes])
    ludus.run(scenario, run_dir=run_dir, report=False, **options)


def test_a_run_goes_on_when_the_originals_are_gone(old: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    learns(tmp_path / "whole", copy)
    impatient = tools.Impatient(4)
    learns(tmp_path / "stopped", copy, observer=impatient, stop=impatient.stop)
    assert len(list((tmp_path / "stopped/policies/1").iterdir())) > 2
    shutil.rmtree(copy)
    resume(tmp_path / "stopped", report=False)
    tools.assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    longer = resume(tmp_path / "stopped", ["generations=3"], report=False)
    assert names(longer)[0][-3:] == ["0-1", "0-2", "0-3"]
    with pytest.raises(ScenarioError, match=r"opponents=.* was given; the run has .* Start a new run"):
        resume(tmp_path / "stopped", ["opponents=random", "generations=4"])


def test_learners_who_would_meet_nobody(old: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", f"{old}/one@1/1-1")
    before = tools.files_of(tmp_path / "run")
    with pytest.raises(RunError, match=r"learners \[0, 1\] meet somebody in seat 0, and the run began with opponents"):
        resume(tmp_path / "run", ["learners=[0, 1]", "generations=2"], report=False)
    assert tools.files_of(tmp_path / "run") == before
    train(tmp_path / "other", f"{old}/one")
    both = resume(tmp_path / "other", ["learners=[0, 1]", "generations=2"], report=False)
    assert [members[-1] for members in names(both)] == ["0-2", "1-2"]


@pytest.mark.slow
def test_killed_at_the_beginning_and_resumed(old: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    learns(whole, old)
    last = tools.dies(lambda: learns(tmp_path / "count", old), tmp_path / "count", at=-1)
    assert last is not None
    for at in (*range(10, 40, 6), last // 2):
        run_dir = tmp_path / str(at)
        assert tools.dies(lambda d=run_dir: learns(d, old), run_dir, at=at) is None
        try:
            resume(run_dir, report=False)
        except RunError as error:
            assert "died before it began" in str(error)  # noqa: PT017
            learns(run_dir, old)
        tools.assert_same_run(whole, run_dir)


@pytest.mark.long
def test_workers_elsewhere_give_the_same_numbers(old: Path, tmp_path: Path) -> None:
    learns(tmp_path / "here", old, "runtime.shards=2")
    learns(tmp_path / "apart", old, "runtime=processes", "runtime.shards=2", "runtime.workers=2", "runtime.tasks=1")
    assert tools.policies_of(tmp_path / "here") == tools.policies_of(tmp_path / "apart")


def test_learners_start_from_one_policy_by_its_name(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is kept with its whole path, so that the run can be gone on with from another folder."""
    file = str((old / "one/policies/0/0-2.safetensors").resolve())
    begun = with_files(load_scenario("kuhn", ["scenario=self_play", f"start={old}/one@0/0-2"]))
    assert begun.start == file  # type: ignore[attr-defined]
    rules = f"warm_start=[random, {{source: file, path: {old}/one@0/0-2}}]"
    seeded = with_files(load_scenario("kuhn", [rules]))
    assert [rule.path for rule in seeded.warm_start] == [None, file]  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError,
        match=r"one@newest' stands for 2 policies, and learners start from one. Name it, such as .*one@0/0-",
    ):
        with_files(load_scenario("kuhn", ["scenario=self_play", f"start={old}/one@newest"]))
    with pytest.raises(ConfigError, match="'random' has no weights to start from"):
        with_files(load_scenario("kuhn", ["scenario=self_play", "start=random"]))
    monkeypatch.chdir(old)
    for name in ("one@0/0-2", "one/policies/0/0-2.safetensors"):
        assert with_files(load_scenario("kuhn", ["scenario=self_play", f"start={name}"])).start == file  # type: ignore[attr-defined]


def test_demonstrations_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    imitates = "{kind: ppo, learned_reward: {kind: gail, demonstrations: expert.parquet}}"
    file = str(tmp_path / "expert.parquet")
    begun = with_files(load_scenario("kuhn", [f"algorithm={imitates}"]))
    assert begun.algorithm.learned_reward.demonstrations == file
    begun = with_files(load_scenario("kuhn", [f"algorithms={{1: {imitates}}}"]))
    assert begun.algorithms["1"].learned_reward.demonstrations == file


def test_experiments_and_sweeps_take_names_as_a_run_does(old: Path, tmp_path: Path) -> None:
    """The file of a policy is looked up once, for all their runs, and opponents are looked at before any of them begins."""
    changes: dict[str, object] = {"scenario": "self_play", "algorithm": "tabular_q", "share": "always", "latest": 0.5}
    preset = [f"{key}={value}" for key, value in changes.items()]
    start, file = f"{old}/one@0/0-2", str(old / "one/policies/0/0-2.safetensors")
    named = load_scenario("kuhn", [*preset, f"start={start}"])
    assert new_experiment(named, [0], run_dir=tmp_path / "seeds", name=None).scenario["start"] == file
    changes["start"] = start
    asked = Sweep(scenario="kuhn", changes=changes, options={"generations": {"choices": [1]}}).check()[0]
    assert asked.start == file  # type: ignore[attr-defined]
    with pytest.raises(LudusError, match="on' is no opponent"):
        new_experiment(
            load_scenario("kuhn", [*preset, f"opponents=[{old}/on]"]), [0], run_dir=tmp_path / "none", name=None
        )
    assert not (tmp_path / "none").exists()


def test_on_the_command_line(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name means a run below ./runs; keys that only the preset's kind has are left out."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(old / "one", tmp_path / "runs" / "one")
    opponents = f"opponents=[one, {{policy: one@1/1-2, weight: 2}}, {old}/bet.safetensors]"
    assert main(["train", "kuhn", "scenario=fixed_opponents", opponents, "generations=1", "--name", "new"]) == 0
    assert "one.1-2" in [record.ref.policy for record in StoredRun(tmp_path / "runs/new").members[1]]


# ---------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("opponents", "message"),
    [
        (
            "{old}/on",
            r"on' is no opponent: there is no run .* An opponent is RUN, .*FILE.safetensors, random, bot:NAME, module:Class or",
        ),
        ("{old}/one@1/1-9", r"one@1/1-9': one has no '1/1-9' to be named after the @; did you mean '1/1-"),
        ("{old}/nothing.safetensors", r"nothing.safetensors' cannot be read"),
        ("{old}/one@0/0-1", r"nobody was given for seat 1 of openspiel/kuhn_poker \(.*one@0/0-1' plays seat 0\)"),
        ("{old}/one/policies/0/0-1.safetensors", "nobody was given for seat 1"),
    ],
)
def test_refused_before_a_run_is_made(opponents: str, message: str, old: Path, tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=message):
        train(tmp_path / "run", opponents.format(old=old))
    assert not (tmp_path / "run").exists()


def test_policies_of_another_game(old: Path, tmp_path: Path) -> None:
    leduc = {"env": "openspiel/leduc_poker"}
    with pytest.raises(
        ScenarioError, match=r"one' plays openspiel/kuhn_poker, and this scenario openspiel/leduc_poker"
    ):
        train(tmp_path / "run", f"{old}/one", **leduc)
    with pytest.raises(LudusError, match=r"bet.safetensors' does not fit openspiel/leduc_poker"):
        train(tmp_path / "run", f"{old}/bet.safetensors", **leduc)
    with pytest.raises(ScenarioError, match="the learners meet nobody"):
        train(
            tmp_path / "run",
            "random",
            env="gymnasium/CartPole-v1",
            algorithm={"kind": "ppo"},
            evaluation={"exploitability": "off"},
        )
    assert not (tmp_path / "run").exists()


def test_memory_and_exact_evaluation(tmp_path: Path) -> None:
    """A policy that remembers is met in training, and nobody can compute what it earns."""
    spec = gru_spec(inputs=11, actions=2, hidden=4)
    file = tmp_path / "remembers.safetensors"
    save_policy(file, spec, gru_weights(spec, np.random.default_rng(0)))
    with pytest.raises(ScenarioError, match=r"remembers.safetensors' .* Set evaluation.payoffs=simulate"):
        train(tmp_path / "run", str(file))
    assert not (tmp_path / "run").exists()
    scenario = tools.parse_scenario(
        LEARNS,
        [f"opponents={file}", "generations=1", "evaluation={payoffs: simulate, episodes: 8, exploitability: off}"],
    )
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    assert names(result)[1] == ["1-0", "file.remembers"]


@pytest.mark.parametrize(
    ("opponents", "message"),
    [
        (["a", "a"], "'a' was given twice; give it once, with a weight"),
        ([{"policy": "a", "wieght": 2}], "did you mean 'weight'"),
        ([{"policy": "a", "weight": 0}], "greater than 0"),
        ([{"policy": "a", "weight": float("inf")}], "finite"),
        ([3], r"3 was given; an opponent is a name, .* or \{policy: NAME, weight: NUMBER\}"),
    ],
)
def test_entries(opponents: list[object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FixedOpponents(env=KUHN, opponents=opponents)
