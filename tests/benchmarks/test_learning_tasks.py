"""The benchmark of the learners: its tasks fit their environments, runs are made once, intervals and bars by hand."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import learning, learning_cells, learning_run
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.learning_bound import best_returns
from benchmarks.learning_cells import RESULTS, Run, all_runs, contestant, peer_of, settings, stored, time_left, wanted
from benchmarks.learning_imitation import cloned, recorded
from benchmarks.learning_plot import svg
from benchmarks.learning_run import exploitability, place, run_seconds, trained
from benchmarks.learning_task import LearningTask
from benchmarks.learning_tasks import TASKS, scenario
from ludus.core.config import to_yaml
from ludus.core.types import Metrics
from ludus.runs.control import StopRequest
from ludus.runs.runner import resume
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.base import NullObserver, RunSummary
from ludus.testing.fakes import Cue

NEEDS = {
    "lunarlander": "Box2D", "halfcheetah": "mujoco", "hopper": "mujoco", "pong": "ale_py",
    "lbf": "lbforaging", "smax": "jaxmarl", "cheetah2x3": "gymnasium_robotics", "ant2x4": "gymnasium_robotics",
}  # fmt: skip
HEAVY = {"smax", "tictactoe"}  # JAX is imported, a large tree is made
IN_THE_ISSUE = """cartpole-ppo cartpole-dqn acrobot-ppo acrobot-dqn lunarlander-ppo lunarlander-dqn pendulum-sac pendulum-td3
    halfcheetah-sac halfcheetah-td3 hopper-sac hopper-td3 pong-ppo leduc-mmd leduc-rnad leduc-nfsp memory-ppo memory-r2d2
    memory-ppo-feedforward memory-dqn-feedforward
    speaker-listener-mappo spread-qmix spread-vdn spread-iql tictactoe-alphazero tictactoe-muzero cartpole-muzero
    spread-mappo spread-happo spread-hatrpo spread-a2po spread-coppo
    speaker-listener-happo speaker-listener-hatrpo speaker-listener-a2po speaker-listener-coppo
    lbf-mappo lbf-happo lbf-hatrpo lbf-a2po lbf-coppo
    smax-3m-mappo smax-3m-happo smax-3m-hatrpo smax-3m-a2po smax-3m-coppo
    smax-2s3z-mappo smax-2s3z-happo smax-2s3z-hatrpo smax-2s3z-a2po smax-2s3z-coppo
    cheetah2x3-mappo cheetah2x3-happo cheetah2x3-hatrpo cheetah2x3-a2po cheetah2x3-coppo
    ant2x4-mappo ant2x4-happo ant2x4-hatrpo ant2x4-a2po ant2x4-coppo
    overcooked-ppo key-and-door-ppo key-and-door-rnd key-and-door-icm key-and-door-dqn-rnd key-and-door-dqn
    cartpole-1-bc cartpole-1-gail cartpole-1-airl
    cartpole-10-bc cartpole-10-gail cartpole-10-airl cartpole-100-bc cartpole-100-gail cartpole-100-airl
    spread-mat spread-mat-dec lbf-mat smax-3m-mat
    pendulum-mpo hopper-mpo cartpole-vmpo lunarlander-vmpo pong-vmpo
    cartpole-apex cartpole-m-iqn cartpole-rainbow-iqn pendulum-apex
    spread-qplex spread-cw-qmix spread-ow-qmix spread-cds-qmix spread-coma
    lbf-qmix lbf-vdn lbf-qplex lbf-cw-qmix lbf-ow-qmix lbf-cds-qmix lbf-coma
    smax-3m-qmix smax-3m-vdn smax-3m-qplex smax-3m-cw-qmix smax-3m-ow-qmix smax-3m-cds-qmix"""


def made(name: str, seed: int = 3, share: float = 1.0) -> Scenario:
    return parse_scenario(to_yaml(scenario(TASKS[name], seed, share=share)))


def scores(name: str, *values: float, seconds: float = 10.0) -> list[tuple[Run, Repetition]]:
    figures = [{"score": value, "seconds": seconds, "wall seconds": seconds} for value in values]
    run = [Run(name, seed) for seed in range(len(values))]
    return [(r, Repetition(r.seed, f)) for r, f in zip(run, figures, strict=True)]


# ------------------------------------------------------------------ tasks


def test_every_row_of_the_issue_is_a_task() -> None:
    assert set(IN_THE_ISSUE.split()) <= set(TASKS)
    assert all(task.source for task in TASKS.values() if task.published is not None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of environments' packages
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name.split("-")[0] in HEAVY)) for name in TASKS]
)
def test_every_task_is_a_scenario_that_its_algorithm_accepts(
    name: str, cartpole_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.split("-")[0] in NEEDS:
        pytest.importorskip(NEEDS[name.split("-")[0]])
    monkeypatch.chdir(cartpole_file.parent)  # where imitation looks for its file
    chosen = made(name)
    env = chosen.env.make(num_envs=1)
    chosen.check(env.spec)
    env.close()
    assert (chosen.seed, chosen.algorithm.collect().unit) == (3, TASKS[name].unit)


def test_budgets() -> None:
    """Leduc: 24 generations of two learners of 50,000 episodes, or of one that plays both seats; everything else is one response."""
    leduc, cartpole = made("leduc-mmd"), made("cartpole-ppo")
    assert (leduc.generations, leduc.response.limit("episodes"), leduc.stop) == (24, 100_000, None)
    assert made("leduc-nfsp").response.limit("episodes") == 50_000
    assert (cartpole.generations, cartpole.response.limit("decisions")) == (1, 100_000)
    assert made("leduc-mmd", share=0.01).response.limit("episodes") == 1000
    assert made("cartpole-ppo", share=0.05).response.limit("decisions") == 5_000


def test_a_cue_is_shown_20_steps_before_the_choice() -> None:
    env = Cue()
    for seed in range(4):
        first, _ = env.reset(seed=seed)
        seen = [env.step(np.int64(first[0] > 0)) for _ in range(21)]
        assert first.tolist() in ([-1, 0], [1, 0])
        assert [step[0].tolist() for step in seen[:20]] == [[0, 0]] * 19 + [[0, 1]]
        assert [(step[1], step[2]) for step in seen] == [(0.0, False)] * 20 + [(1.0, True)]
    first, _ = env.reset(seed=0)
    assert [env.step(np.int64(first[0] < 0))[1] for _ in range(21)] == [0.0] * 21
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {-1.0, 1.0}
    with pytest.raises(ValueError, match="delay is 0"):
        Cue(delay=0)


def test_the_best_paths_by_hand() -> None:
    """From (1, 0) in three steps of MPE2: it stays at 1, moves by 0.05, then by 0.0875 after a second push: each agent is charged
    1 + 0.95² + 0.8625² = 2.64640625. Where the push counts at once: 0.95² + 0.8625² + 0.746875² = 2.204228515625."""
    start = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, -1.0]])
    np.testing.assert_allclose(best_returns(start, steps=3), [-5.2928125, 0.0, -5.2928125])
    np.testing.assert_allclose(best_returns(start[:1], steps=3, before=False), [-4.40845703125])
    np.testing.assert_allclose(best_returns(start[:1], steps=3, idle=1), [-2 * (1 + 1 + 0.95**2)])


def test_exploitability_at_the_end_is_that_of_the_run(tmp_path: Path) -> None:
    """Of a run that computes it, too; and of one that has played without the tree."""
    keys = {
        "scenario": "self_play", "share": "always", "mode": "greedy", "env": {"id": "openspiel/kuhn_poker", "num_envs": 4},
        "algorithm": {"kind": "ppo", "batch": 24, "hidden": [4]},
    }  # fmt: skip
    task = LearningTask("kuhn", keys, 48, unit="episodes", score="exploitability", at_end=True)
    given = scenario(task, 0)
    assert (given["generations"], given["response"], given["evaluation"]["exploitability"]) == (
        1,
        {"episodes": 48},
        "off",
    )
    told = trained(to_yaml({**given, "evaluation": {"exploitability": "auto"}}), tmp_path / "tree", NullObserver())
    assert exploitability(task, tmp_path / "tree")["score"] == pytest.approx(told.nash_conv[-1] / 2)
    alone = {**given, "env": {**keys["env"], "tree": "off"}}
    trained(to_yaml(alone), tmp_path / "alone", NullObserver())
    assert 0.0 < exploitability(task, tmp_path / "alone")["score"] < 2.0
    assert [TASKS[f"tictactoe-{kind}"].at_end for kind in ("alphazero", "muzero")] == [False, True]


@pytest.mark.long
def test_an_expert_is_trained_and_recorded_before_it_is_imitated(tmp_path: Path) -> None:
    """In a folder of its own, where the task's scenario finds the file; afterwards all are where they were."""
    task, here = TASKS["cartpole-1-bc"], Path.cwd()
    with recorded(task, 0, tmp_path, share=0.01) as found:
        assert Path.cwd() == tmp_path.resolve()
        made("cartpole-1-gail").check(made("cartpole-1-gail").env.make(num_envs=1).spec)
        figures = cloned(replace(task, episodes=4), 0)
    assert Path.cwd() == here
    assert found["expert score"] > 5
    assert figures["score"] > 5
    with_settings = settings(Run("cartpole-1-bc", 0))
    assert (with_settings["demonstrations"], with_settings["cloned"]) == (1, True)


# ------------------------------------------------------------------ runs


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Runs that a fake has made: the score is the seed; seed 1 of acrobot-dqn fails."""
    log: list[Run] = []

    def play(run: Run, *, core: int, quick: bool) -> Repetition:
        log.append(run)
        if run == Run("acrobot-dqn", 1):
            return Repetition(run.seed, {}, error="exit status 1")
        return Repetition(run.seed, {"score": float(run.seed), "seconds": 60.0, "wall seconds": 90.0})

    monkeypatch.setattr(learning_cells, "play", play)
    return log


def test_runs_are_made_once(played: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = wanted(["acrobot-ppo", "acrobot-dqn"], [0, 1])
    assert runs == [Run(name, seed) for seed in (0, 1) for name in ("acrobot-ppo", "acrobot-dqn")]
    first = list(all_runs(runs, core=0, quick=False, folder=tmp_path))
    assert (played, [run for run, _ in first]) == (runs, runs)
    assert "acrobot-ppo, seed 0: 0 after 90 s; 2 min left and 2 runs of unknown length" in capsys.readouterr().err
    played.clear()
    again = list(all_runs(runs, core=0, quick=False, folder=tmp_path))
    assert played == [Run("acrobot-dqn", 1)]  # it failed, and is tried again
    assert dict(again) == dict(first)
    document = json.loads((tmp_path / "acrobot-ppo" / "1.json").read_text())
    assert set(document) == {"date", "commit", "machine", "settings", "repetition"}
    assert document["settings"]["response"] == {"decisions": 1_000_000}
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["0.json", "0.json", "1.json"]


def test_results_of_other_settings_do_not_count(
    played: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run("hopper-sac", 0, peer=True)
    list(all_runs([run], core=0, quick=False, folder=tmp_path))
    path = tmp_path / "hopper-sac" / "sb3-0.json"
    assert stored(run, tmp_path) is not None
    path.write_text(path.read_text().replace("300000", "200000"))
    assert stored(run, tmp_path) is None
    assert "hopper-sac, SB3, seed 0: measured with other settings" in capsys.readouterr().err


@pytest.mark.slow
def test_every_result_that_is_kept_counts() -> None:
    """Those of settings or names of the past are measured anew, or go."""
    kept = {path.relative_to(RESULTS) for path in RESULTS.rglob("*.json")}
    seeds = {int(path.stem.rpartition("-")[2]) for path in kept}
    runs = [
        run
        for name in TASKS
        for run in (Run(name, s, peer) for s in seeds for peer in (False, True))
        if run.path in kept
    ]
    assert [str(run.path) for run in runs if stored(run, RESULTS) is None] == []
    assert kept == {run.path for run in runs}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": {}, "repetition": {"speed": 1}}'])
def test_a_damaged_result_is_named(text: str, tmp_path: Path) -> None:
    run = Run("cartpole-ppo", 0)
    path = tmp_path / run.path
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"0\.json is no result of a run .*Restore it from git, or delete it"):
        stored(run, tmp_path)


def test_quick_writes_nothing(played: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main(["cartpole-ppo", "leduc-mmd", "--quick", "--results", str(tmp_path)]) == 0
    assert played == [Run("cartpole-ppo", 0), Run("leduc-mmd", 0)]
    assert not list(tmp_path.iterdir())
    assert "bar " not in capsys.readouterr().out


def test_the_first_seed_of_every_task_comes_first_and_the_peer_beside_us() -> None:
    assert [(r.contestant, r.seed) for r in wanted(["hopper-td3", "pendulum-td3"])] == [
        ("hopper-td3", 0), ("hopper-td3, SB3", 0), ("pendulum-td3", 0), ("hopper-td3", 1), ("hopper-td3, SB3", 1), ("pendulum-td3", 1),
        ("hopper-td3", 2), ("hopper-td3, SB3", 2), *(("pendulum-td3", seed) for seed in range(2, 5)),
    ]  # fmt: skip
    assert learning.chosen(["LONG", "cartpole-ppo"])[:3] == ["cartpole-ppo", "lunarlander-dqn", "halfcheetah-sac"]
    with pytest.raises(SystemExit, match="no task is called 'pong'"):
        learning.chosen(["pong"])


def test_workers() -> None:
    ours = contestant(TASKS["cartpole-ppo"], peer=False, share=0.05)
    assert ours.command(seed=2, quick=False)[1:] == [
        "benchmarks.learning_run", "--task", "cartpole-ppo", "--share", "0.05", "--seed", "2",
    ]  # fmt: skip
    peer = contestant(TASKS["hopper-td3"], peer=True)
    assert peer.command(seed=0, quick=False)[1:] == [
        "benchmarks.peers.sb3_learning.run", "--algorithm", "td3", "--env", "Hopper-v5", "--decisions", "300000", "--seed", "0",
    ]  # fmt: skip
    team = contestant(TASKS["spread-qmix"], peer=True, share=0.05)
    assert team.command(seed=1, quick=False)[1:] == [
        "benchmarks.peers.epymarl.run", "--algorithm", "qmix", "--env", "mpe2/simple_spread_v3", "--steps", "50000", "--seed", "1",
    ]  # fmt: skip
    assert (team.name, team.peer, Run("spread-qmix", 1, peer=True).path.name) == (
        "spread-qmix, EPyMARL",
        "epymarl",
        "epymarl-1.json",
    )


def test_time_left() -> None:
    done = scores("cartpole-ppo", 1.0, seconds=60.0) + scores("cartpole-ppo", 1.0, seconds=180.0)
    assert time_left([Run("cartpole-ppo", 2), Run("cartpole-ppo", 3)], done) == "4 min left"
    assert time_left([Run("pong-ppo", 0)], done) == "0 min left and 1 runs of unknown length"


# ------------------------------------------------------------------ what is printed


def lines(names: list[str], *found: tuple[Run, Repetition]) -> list[str]:
    return [bar.judge(Medians(learning.grouped(found))).line() for bar in learning.bars(names)]


def test_bars_are_of_means_over_all_seeds() -> None:
    """Acrobot: (-70 - 72 - 73 - 74 - 78) / 5 = -73.4. Four seeds judge nothing, nor does a failed fifth."""
    some = scores("acrobot-ppo", -70.0, -72.0, -73.0, -74.0, -78.0)
    name = "bar acrobot-ppo, mean return of 5 seeds:"
    assert lines(["acrobot-ppo"], *some) == [f"{name} -73.4 (wanted >= -73.5) met"]
    assert lines(["acrobot-ppo"], *scores("acrobot-ppo", -70.0, -72.0, -73.0, -74.0, -79.0)) == [
        f"{name} -73.6 (wanted >= -73.5) short"
    ]
    failed = (Run("acrobot-ppo", 4), Repetition(4, {}, error="exit status 1"))
    assert lines(["acrobot-ppo"], *some[:4], failed) == [f"{name} - (wanted >= -73.5) unjudged"]
    assert lines(["leduc-mmd"], *scores("leduc-mmd", 0.1, 0.2, 0.1, 0.2, 0.1))[0].endswith("0.14 (wanted <= 0.15) met")
    assert lines(["leduc-nfsp"], *scores("leduc-nfsp", 0.1)) == []


def test_bars_are_of_the_tasks_own_seeds() -> None:
    """Five others judge nothing, more than the five change nothing, and a seed that is named twice counts once."""
    others = [(Run("acrobot-ppo", 5 + k), Repetition(5 + k, {"score": -60.0, "seconds": 1.0})) for k in range(5)]
    assert learning.judged(learning.grouped(others)) == {"acrobot-ppo": []}
    own = scores("acrobot-ppo", -70.0, -72.0, -73.0, -74.0, -79.0)
    assert learning.judged(learning.grouped([*others, *own])) == learning.grouped(own)
    assert wanted(["acrobot-ppo"], [7, 7, 0]) == [Run("acrobot-ppo", 7), Run("acrobot-ppo", 0)]


def test_beside_the_peer() -> None:
    """Means of 950 ± 10 (each time as far from the mean) and 1,000, which is certain: t(0.975, 2) = 4.3027, so 0.95 ± 0.0248. Nothing is
    said beside a peer that earns nothing, or has not run."""
    ours, runs = scores("hopper-sac", 940.0, 950.0, 960.0), [Run("hopper-sac", seed, peer=True) for seed in range(3)]

    def beside(score: float) -> list[str]:
        return lines(["hopper-sac"], *ours, *((run, Repetition(run.seed, {"score": score})) for run in runs))

    name = "bar hopper-sac, mean return as a share of SB3's, 95%"
    assert beside(1000.0) == [f"{name} up to: 0.9748 (wanted >= 1) short", f"{name} from: 0.9252 (wanted >= 0.9) met"]
    assert [line.split()[-1] for line in beside(950.0)] == ["met", "met"]
    assert [line.split()[-1] for line in beside(-1.0)] == ["unjudged"] * 2
    assert lines(["hopper-sac"], *ours)[0].endswith("unjudged")


def test_of_exploitability_the_peer_is_measured_by_us() -> None:
    """0.4, which is certain, and 0.4 with a deviation of 0.02: 4.3027 times 0.02 / sqrt(3), by 0.4, is 0.1242."""
    ours, runs = scores("leduc-rnad", 0.4, 0.4, 0.4), [Run("leduc-rnad", seed, peer=True) for seed in range(3)]
    theirs = ((run, Repetition(run.seed, {"score": 0.38 + 0.02 * run.seed})) for run in runs)
    name = "bar leduc-rnad, OpenSpiel's mean exploitability as a share of ours, 95%"
    assert lines(["leduc-rnad"], *ours, *theirs) == [
        f"{name} up to: 1.124 (wanted >= 1) met",
        f"{name} from: 0.8758 (wanted >= 0.9) short",
    ]


def test_the_picture_has_a_panel_for_each_algorithm_and_dots_of_peers() -> None:
    def run(score: float, *returns: float) -> Repetition:
        return Repetition(0, {"score": score}, {"share": [0.0, 1.0], "training_return": list(returns)})

    found = {"spread-qmix": [run(-50.0, -90.0, -20.0)], "spread-vdn": [run(-30.0, -55.0, -200.0)], "spread-coma": []}
    found[peer_of("spread-vdn")] = [Repetition(0, {"score": -40.0}, {"steps": [5e5, 1e6], "score": [-55.0, -20.0]})]
    tree, name = ET.fromstring(svg(found)), "{http://www.w3.org/2000/svg}"
    titles = [text.text for text in tree.iter(f"{name}text") if text.get("font-size") == "14"]
    assert titles == ["vdn: -30.000", "qmix: -50.000"]  # the best first
    assert [(dot.get("cx"), dot.get("cy")) for dot in tree.iter(f"{name}circle")] == [
        ("90.0", "70.0"),
        ("180.0", "0.0"),
    ]
    thick = [path.get("d") or "" for path in tree.iter(f"{name}path") if path.get("stroke-width") == "2.0"]
    assert [(path.split("L")[0], path.split("L")[-1]) for path in thick] == [
        ("M0.0 70.0", "180.0 140.0"),  # what is beyond the axis lies on its end
        ("M0.0 140.0", "180.0 0.0"),
    ]
    with pytest.raises(ValueError, match="no runs"):
        svg({})


def test_the_table_has_means_intervals_and_the_published_score() -> None:
    """Half width of 150 and 160 around 155: t(0.975, 1) = 12.706, times 7.071 / sqrt(2) = 5."""
    found = learning.grouped(scores("lunarlander-dqn", 150.0, 160.0))
    found[peer_of("lunarlander-dqn")] = [Repetition(0, {"score": 1.25})]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(learning.table(["cartpole-ppo", "lunarlander-dqn"], found))
    text = console.export_text()
    row = next(line for line in text.splitlines() if "lunarlander-dqn" in line)
    cells = [cell.strip() for cell in row.replace("┃", "│").split("│")[1:-1]]
    assert cells == [
        "lunarlander-dqn", "100,000 decisions", "2", "155.000 ± 63.531", "154.382", "1.250", ">= 154", "10",
    ]  # fmt: skip
    other = next(line for line in text.splitlines() if "cartpole-ppo" in line)
    assert "│     0 │         unjudged │       500 │" in other  # it was not played


def test_report_runs_nothing(played: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(all_runs(wanted(["acrobot-dqn"], [0]), core=0, quick=False, folder=tmp_path))
    played.clear()
    assert learning.main(["acrobot-dqn", "cartpole-ppo", "--report", "--results", str(tmp_path)]) == 0
    assert played == []
    printed = capsys.readouterr().out
    assert "bar acrobot-dqn, mean return of 5 seeds: - (wanted >= -76.6) unjudged" in printed
    assert learning.main(["--list"]) == 0
    assert "leduc-nfsp" in capsys.readouterr().out


class Stopping(NullObserver):
    """Raises at the third sign of progress, unless it is told not to."""

    def __init__(self, *, raises: bool) -> None:
        self._left = 3 if raises else -1
        self.counters: dict[str, int] = {}
        self.fractions: list[float] = []

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self.fractions.append(fraction or 0.0)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt

    def run_finished(self, summary: RunSummary) -> None:
        self.counters = dict(summary.counters)


def test_a_run_of_hours_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = {"kind": "ppo", "batch": 64, "batch_unit": "decisions", "epochs": 1, "hidden": [4]}
    keys = {"env": {"id": "gymnasium/CartPole-v1", "num_envs": 4}, "algorithm": algorithm}
    task = LearningTask("cartpole", keys, 640, barriers=1)
    text = to_yaml(scenario(task, 0))
    with pytest.raises(KeyboardInterrupt), place(task, 0, text, root=tmp_path) as folder:
        trained(text, folder, Stopping(raises=True))
    assert folder == tmp_path / "cartpole-0" / "run"
    stop = StopRequest()
    stop.request()
    with monkeypatch.context() as patch:
        patch.setattr(learning_run, "resume", partial(resume, stop=stop))
        # Stopped in good order: what it has is no result either.
        with pytest.raises(SystemExit, match="The same command goes on"), place(task, 0, text, root=tmp_path) as folder:
            trained(text, folder, NullObserver())
    watching = Stopping(raises=False)
    with place(task, 0, text, root=tmp_path) as folder:
        trained(text, folder, watching)
        assert watching.counters["updates"] == 10
        assert run_seconds(folder) > 0
    assert min(watching.fractions) > 0.1
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cartpole-0" / "run").mkdir(parents=True)
    (tmp_path / "cartpole-0" / "scenario.yaml").write_text("another", encoding="utf-8")
    with place(task, 0, text, root=tmp_path) as folder:  # of another scenario: begun anew
        assert not folder.exists()
    with place(replace(task, barriers=None), 0, text, root=tmp_path) as folder:
        assert tmp_path not in folder.parents
