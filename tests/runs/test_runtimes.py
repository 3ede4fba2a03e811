"""One scenario in one process, in processes of this machine and on Ray: the same numbers, whoever carries the shards."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tools as tools
from safetensors.numpy import load_file

from ludus.cli.main import main
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import DeviceChoice
from ludus.policies.file import load_policy
from ludus.policies.stacks import DeviceStack
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import load_scenario, parse_scenario
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.runtime.inprocess import InProcess
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader

PSRO = """
env: {id: openspiel/kuhn_poker, num_envs: 12, tree: off}
algorithm: {kind: ppo, batch: 24}
response: {episodes: 96}
evaluation: {payoffs: simulate, episodes: 20, exploitability: off}
checkpoints: {iterations: 2}
"""


def policies(folder: Path, *changes: str, name: str) -> dict[str, bytes]:
    run(parse_scenario(PSRO, ["runtime.shards=3", *changes]), run_dir=folder / name, report=False)
    return tools.policies_of(folder / name)


def test_shards_are_part_of_the_scenario(tmp_path: Path) -> None:
    three = policies(tmp_path, "generations=1", name="three")
    scenario = parse_scenario(PSRO, ["generations=1"])
    run(scenario, run_dir=tmp_path / "one", report=False)
    assert three != tools.policies_of(tmp_path / "one")
    assert scenario.with_shards().runtime.shards == 1
    assert "shards: 3" in (tmp_path / "three" / "scenario.yaml").read_text()


@pytest.mark.parametrize(
    ("changes", "shards"),
    [
        (["runtime.workers=2"], 3),  # of four environments each
        (["runtime.workers=3"], 3),
        (["runtime.workers=2", "env.num_envs=7"], 2),
        (["env.num_envs=7"], 1),
        (["env.num_envs=256"], 8),
        (["runtime.workers=12"], 12),  # more workers than pieces of four
        (["runtime.workers=2", "env.num_envs=3"], 2),
        (["runtime.workers=2", "runtime.mode=async"], 2),  # there results depend on who is first anyway
        (["runtime.workers=2", "runtime.mode=async", "runtime.shards=4"], 4),
        (["runtime.workers=4", "runtime.mode=async", "env.num_envs=3"], "Give runtime.shards=4 and env.num_envs=4"),
        (["env.num_envs=64", "algorithm={kind: dqn, rollout: 5, rollout_unit: decisions}"], 5),
        (["runtime.workers=9", "runtime.shards=8"], "Give runtime.shards=9: results depend"),
        (["runtime.workers=4", "env.num_envs=3"], "Give runtime.shards=4 and env.num_envs=4 or more: results"),
    ],
)
def test_shards_have_four_environments_or_are_as_many_as_workers(changes: list[str], shards: int | str) -> None:
    scenario = parse_scenario(PSRO, ["runtime.kind=ray", *changes])
    if isinstance(shards, int):
        assert scenario.with_shards().runtime.shards == shards
    else:
        with pytest.raises(ScenarioError, match=shards):
            scenario.with_shards()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["runtime.workers=2"],
            "workers=2 was given, and runtime.kind is inprocess.*with equal shards: runtime.shards=8 in both",
        ),
        (["runtime.table_shards=2", "runtime.trainers=2"], "one trainer, or no shards"),
        (["runtime.trainers=2"], "trainers=2 was given, and runtime.kind is inprocess"),
        (["runtime.address=auto"], "address='auto' was given, and runtime.kind is inprocess"),
        (
            ["runtime.kind=ray", "runtime.trainers=1", "runtime.device=cuda:1"],
            "Ray places trainers: .* Give device=cuda",
        ),
        (
            ["runtime.kind=ray", "runtime.trainers=2", "runtime.device=cuda", "runtime.trainer_gpus=0.5"],
            "need a GPU each",
        ),
        (
            ["runtime.kind=ray", "runtime.gpus=0.5", "runtime.device=cuda:1"],
            "Ray places workers: .* Give device=cuda",
        ),
        (["runtime=processes", "runtime.address=auto"], "address='auto' was given, and runtime.kind is processes"),
        (["runtime=processes", "runtime.resources={gold: 1}"], "only Ray counts them"),
        (["runtime=processes", "runtime.inference={kind: server, gpus: 0.5}"], "inference.gpus=0.5 .* only Ray shares"),
        (["runtime=processes", "runtime.trainers=2", "runtime.device=cuda"], "trainers=2 .* only Ray's do on GPUs"),
        (["runtime=ray", "runtime.address=local"], "address='local' was given; expected host:port"),
        (["runtime=ray", "runtime.address=ray://head:10001"], "submit the command as a job"),
        (["runtime=ray", "runtime.acting=device"], "acting=device was given, and its workers have no GPU"),
        (["runtime=ray", "runtime.acting=cpu", "runtime.gpus=0.5"], "acting=cpu was given, and runtime.gpus=0.5"),
        (
            ["runtime.acting=cpu", "runtime.environments=device"],
            "acting=cpu was given, and runtime.environments=device",
        ),
        (["runtime=rey"], "unknown runtime 'rey'; did you mean 'ray'"),
        (["runtime.worker=2"], "did you mean 'workers'"),
    ],
)
def test_runtimes_reject_invalid_settings(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_scenario("kuhn", changes).runtime.check()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ("auto", False)),
        (["runtime.acting=device"], ("auto", False)),
        (["runtime.device=cuda:1"], ("cuda:1", True)),
        (["runtime.device=cuda:1", "runtime.acting=device"], ("cuda:1", False)),
        (["runtime.device=cuda", "runtime.acting=cpu"], ("cpu", False)),
        (["runtime.device=cuda", "runtime.kind=ray"], ("cpu", False)),
        (["runtime.device=cuda", "runtime.kind=ray", "runtime.gpus=0.1"], ("cuda", False)),
    ],
)
def test_where_workers_act(changes: list[str], expected: tuple[str, bool]) -> None:
    """On a GPU that is asked for, as much as is large enough for it."""
    acting = load_scenario("kuhn", changes).runtime.acting_choice
    assert (acting.device, acting.if_large) == expected


def test_policies_that_act_on_the_cpu_play_there_and_need_no_gpu() -> None:
    changes = ["runtime.device=cuda", "runtime.acting=cpu"]
    runtime = load_scenario("kuhn", [*changes, "runtime.kind=ray", "runtime.inference=server"]).runtime
    assert runtime.plays_on == "host"
    assert runtime.shared is not None
    assert (runtime.shared.device.device, runtime.shared.resources["num_gpus"]) == ("cpu", 0.0)
    assert load_scenario("kuhn", changes[:1]).runtime.plays_on == "auto"


@pytest.mark.parametrize("algorithm", ["{kind: ppo, batch: 24}", "{kind: a2c, memory: gru, memory_size: 4, batch: 24}"])
def test_a_run_acts_where_it_is_asked_to(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch on the CPU, learners and opponents, in training and in matches; it plays the same games, and learns the same from them."""
    scenario = parse_scenario(PSRO, [f"algorithm={algorithm}", "generations=1"])
    asked: list[int] = []
    real = DeviceStack.__call__

    def counted(stack: DeviceStack, *rows: Any) -> Any:
        asked.append(len(rows[0]))
        return real(stack, *rows)

    monkeypatch.setattr(DeviceStack, "__call__", counted)
    found = []
    for name in ("compiled", "torch"):
        asked.clear()
        run(scenario, run_dir=tmp_path / name, report=False)
        files = sorted((tmp_path / name).rglob("policies/*/*.safetensors"))
        found.append([load_file(file) for file in files])
        assert bool(asked) == (name == "torch")
        monkeypatch.setattr(RuntimeChoice, "acting_choice", DeviceChoice("cpu", written=False))
    assert len(found[0]) > 2
    for ours, theirs in zip(*found, strict=True):
        for key, array in ours.items():
            np.testing.assert_allclose(theirs[key], array, atol=1e-4, err_msg=key)


@pytest.fixture
def elsewhere(apart: str) -> str:
    return f"runtime.kind={apart}"


class Stuck(InProcess):
    """Its worker gives no answer when it is first asked for one."""

    silent = 2  # looks; the first time, anything is a sign of life

    def wait(self, refs: Any, *, at_least: int = 1, timeout: float | None = None) -> Any:
        if at_least and self.silent:
            self.silent -= 1
            time.sleep(timeout or 0.0)
            return [], list(refs)
        return super().wait(refs, at_least=at_least, timeout=timeout)


class Hears(NullObserver):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def message(self, text: str) -> None:
        self.heard.append(text)


def test_a_worker_that_is_made_again_is_told_and_kept(tmp_path: Path) -> None:
    whole, hears = policies(tmp_path, "generations=1", name="whole"), Hears()
    changes = ["generations=1", "runtime.shards=3", f"runtime.kind={__name__}:Stuck", "runtime.deadline=0.001"]
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "stuck", report=False, observer=hears)
    text = "rollout worker 0 has made no step for 0.001 seconds; it is made again (2 of 3 restarts are left)."
    assert text in hears.heard
    with Reader(tmp_path / "stuck") as reader:
        assert [(event.level, event.text) for event in reader.events() if event.kind == "worker"] == [("warning", text)]
    assert tools.policies_of(tmp_path / "stuck") == whole


class ThisProcess(InProcess):
    """A runtime that may have any number of workers."""


def test_a_run_resumed_with_more_workers_than_shards_says_so(tmp_path: Path) -> None:
    whole, hears = policies(tmp_path, "generations=2", name="whole"), Hears()
    policies(tmp_path, "generations=1", name="more")
    changes = ["generations=2", f"runtime.kind={__name__}:ThisProcess", "runtime.workers=5"]
    resume(tmp_path / "more", changes, report=False, observer=hears)
    text = "warning: runtime.workers=5, and the run has 3 shards, which it keeps: 2 workers have nothing to play"
    assert sum(heard.startswith(text) for heard in hears.heard) == 1
    assert tools.policies_of(tmp_path / "more") == whole


def test_several_tasks_at_once_change_nothing(tmp_path: Path) -> None:
    one = policies(tmp_path, "generations=2", name="one")
    assert policies(tmp_path, "generations=2", "runtime.tasks=2", name="two") == one
    assert len(one) == 6


@pytest.mark.slow
def test_a_run_of_several_tasks_is_resumed_to_the_bit(tmp_path: Path) -> None:
    """Stopped in the middle of two responses, which have passed different numbers of barriers."""
    changes = ["generations=2", "runtime.tasks=2", "algorithm.batch=12"]
    whole = policies(tmp_path, *changes, name="whole")
    for after in (21,):
        observer = tools.Impatient(after)
        folder = tmp_path / f"cut{after}"
        scenario = parse_scenario(PSRO, ["runtime.shards=3", *changes])
        run(scenario, run_dir=folder, report=False, observer=observer, stop=observer.stop)
        assert observer.stop.requested
        resume(folder, report=False)
        assert tools.policies_of(folder) == whole


def test_batches_that_are_sampled_ahead_are_the_same(tmp_path: Path) -> None:
    changes = ["generations=1", "algorithm={kind: dqn, rollout: 24, min_size: 24, batch: 8, hidden: [8]}"]
    now = policies(tmp_path, *changes, name="now")
    assert policies(tmp_path, *changes, "runtime.prefetch=2", name="ahead") == now


def test_workers_that_play_apart(tmp_path: Path) -> None:
    """In one process the order of answers is fixed, so asynchronous training is as deterministic as the other."""
    sync = policies(tmp_path, "generations=1", name="sync")
    first = policies(tmp_path, "generations=1", "runtime.mode=async", name="first")
    second = policies(tmp_path, "generations=1", "runtime.mode=async", name="second")
    assert first == second
    assert first != sync, "two orders are out at a time, so the second one is played with older weights"
    alone = policies(tmp_path, "generations=1", "runtime.mode=async", "runtime.in_flight=1", name="alone")
    assert alone.keys() == sync.keys()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("dqn", marks=pytest.mark.long)])
@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_asynchronous_run_is_resumed(tmp_path: Path, algorithm: str, elsewhere: str) -> None:
    """On Ray: `async-node-large` of the long kills of tests/faults."""
    changes = [
        f"algorithm={{kind: {algorithm}}}", *(["algorithm.batch=24"] if algorithm == "ppo" else ["algorithm.rollout=24",
        "algorithm.min_size=24"]), "generations=1", elsewhere, "runtime.workers=2",
        "runtime.mode=async", "response={episodes: 240}",
    ]  # fmt: skip
    scenario = parse_scenario(PSRO, changes)
    observer = tools.Impatient(8)
    run(scenario, run_dir=tmp_path / "apart", report=False, observer=observer, stop=observer.stop)
    assert observer.stop.requested
    result = resume(tmp_path / "apart", report=False)
    assert len(tools.policies_of(tmp_path / "apart")) == 4
    assert 2 * 240 <= result.episodes <= 2 * (240 + 24 * 3), "orders that nobody needs are not given out"


@pytest.mark.slow
@pytest.mark.parametrize("apart", ["processes", pytest.param("ray", marks=pytest.mark.long)], indirect=True)
def test_two_trainers_in_processes_of_their_own_learn_what_one_process_does(tmp_path: Path, elsewhere: str) -> None:
    """To rounding."""
    policies(tmp_path, "generations=1", name="here")
    away = ["generations=1", elsewhere, "runtime.workers=2", "runtime.tasks=1"]
    policies(tmp_path, *away, "runtime.trainers=2", name="two")
    for path in sorted((tmp_path / "here" / "policies").rglob("*.safetensors")):
        other = tmp_path / "two" / path.relative_to(tmp_path / "here")
        ours, theirs = load_policy(path).weights(), load_policy(other).weights()
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(theirs[name], array, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_one_trainer_in_a_process_of_its_own_is_equal_to_the_bit(tmp_path: Path, elsewhere: str) -> None:
    """And a run moves between it and one process at a barrier."""
    here = policies(tmp_path, "generations=1", name="here")
    away = ["generations=1", elsewhere, "runtime.workers=2", "runtime.tasks=1"]
    assert policies(tmp_path, *away, "runtime.trainers=1", name="one") == here
    for name in ("here", "one"):  # where it learned comes with the result
        with Reader(tmp_path / name) as reader:
            assert reader.summary().learned_on == ["cpu (CPU kernels): there is no GPU"]
    resume(
        tmp_path / "one",
        ["generations=2", "runtime.kind=inprocess", "runtime.workers=1", "runtime.trainers=0"],
        report=False,
    )
    assert tools.policies_of(tmp_path / "one") == policies(tmp_path, "generations=2", name="longer")


@pytest.mark.slow
@pytest.mark.parametrize("trainers", [pytest.param(0, marks=pytest.mark.long), 1])
@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_run_with_tables_in_processes_of_their_own_is_resumed(tmp_path: Path, trainers: int, elsewhere: str) -> None:
    """Two shards, a barrier, and a resume. On Ray, tables are in test_sharded_apart, and a run's among the long kills of tests/faults."""
    changes = [
        "algorithm={kind: dqn, rollout: 24, min_size: 24, batch: 8, hidden: [8]}", "generations=1",
        elsewhere, "runtime.table_shards=2", f"runtime.trainers={trainers}", "runtime.prefetch=1",
    ]  # fmt: skip
    observer = tools.Impatient(9)
    scenario = parse_scenario(PSRO, changes)
    run(scenario, run_dir=tmp_path / "a", report=False, observer=observer, stop=observer.stop)
    assert observer.stop.requested
    resume(tmp_path / "a", report=False)
    assert len(tools.policies_of(tmp_path / "a")) == 4


@pytest.mark.long
@pytest.mark.parametrize("apart", ["processes"], indirect=True)
def test_run_of_three_workers_is_resumed_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    """Begun on as many workers as there are shards, gone on with by one process: as a run that was never stopped. With fewer workers, and
    on Ray: after the kills of tests/faults."""
    here = policies(tmp_path, "generations=2", name="here")
    policies(tmp_path, "generations=1", elsewhere, "runtime.workers=3", name="moved")
    monkeypatch.chdir(tmp_path)
    resume(tmp_path / "moved", ["generations=2", "runtime.kind=inprocess", "runtime.workers=1"], report=False)
    assert tools.policies_of(tmp_path / "moved") == here
    with pytest.raises(Exception, match=r"runtime.shards=2 was given; the run has 3"):
        resume(tmp_path / "moved", ["runtime.shards=2"], report=False)


@pytest.mark.slow
def test_train_command_runs_on_ray_with_bots_beside_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["train", "kuhn", "algorithm=ppo", "generations=1", "response.episodes=500", "--name", "a"]
    bots = [
        "opponents=[bot:uniform_random]",
        "env.tree=off",
        "evaluation={payoffs: simulate, episodes: 20}",
        "stop=null",
    ]
    ray = ["runtime.bots={processes: 1}", "runtime.shards=2", "--runtime", "ray", "--workers", "2"]
    assert main([*line, *bots, *ray]) == 0
    assert "run" in capsys.readouterr().out
    text = (tmp_path / "runs" / "a" / "scenario.yaml").read_text()
    assert "kind: ray" in text
    assert "shards: 2" in text


def test_exact_values_are_computed_on_the_card_that_a_run_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU that is called a GPU, for exact responses, which no GPU learns: payoffs, exploitability and the responses themselves."""
    asked: list[str] = []

    def called(device: str) -> str:
        asked.append(device)
        return "cpu"

    for user in ("runs.scenario_runtime", "evaluation.exact"):
        monkeypatch.setattr(f"ludus.{user}.require_gpu", called)
    exact = "{env: openspiel/kuhn_poker, algorithm: exact, generations: 3}"
    found = []
    for device in ("cpu", "cuda:1"):
        scenario = parse_scenario(exact, [f"runtime.device={device}"])
        found.append(run(scenario, run_dir=tmp_path / device[:4], report=False).nash_conv)
    assert asked.count("cuda:1") == len(asked) >= 2
    np.testing.assert_allclose(*found, rtol=0, atol=1e-9)
