"""What can only be seen on a GPU: that it learns, computes and goes on as a CPU does. Run by `make test-gpu`; with LUDUS_TEST_DEVICE=cpu
without one."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_devices import CASES, Case, assert_learn_alike, assert_same, taught, unexplained

from ludus.algorithms.common.returns import vtrace_targets
from ludus.backend import device
from ludus.backend.device import scalars_to_host, to_device, to_numpy
from ludus.cli.main import main
from ludus.core.machine import deterministic_algorithms
from ludus.core.types import DeviceChoice
from ludus.envs.tree.game_tree import compile_tree
from ludus.envs.tree.tensors import TreeTensors
from ludus.policies.file import load_policy
from ludus.replay.base import Sample, TableSpec
from ludus.replay.kinds import build_table
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario
from ludus.storage.reader import Reader
from ludus.training import ondevice_rounds
from ludus.training.ondevice_rounds import RoundsCollector

pytestmark = pytest.mark.gpu

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which no product on a GPU is the same twice
HERE = DeviceChoice("cpu", written=False)


@pytest.fixture
def cuda(gpu):
    if gpu == "cpu":
        pytest.skip("graphs are a GPU's")
    return gpu


def compile_anew() -> None:
    with warnings.catch_warnings():  # torch's own, of its parts
        warnings.simplefilter("ignore")
        torch._dynamo.reset()


def there(gpu: str) -> DeviceChoice:
    return DeviceChoice(gpu, written=False)


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_learns_as_a_cpu_and_each_goes_on_from_the_other(name, request, gpu):
    case = Case(name, request)
    cpu, gpu = case.learner(HERE), case.learner(there(gpu))
    assert torch.device(gpu.placement.device).type == gpu
    assert_learn_alike(case, cpu, gpu)


@pytest.mark.parametrize("name", ["ppo", "ppo, gru", "rainbow", "qmix, gru", "sac"])
def test_the_same_twice(name, request, gpu):
    case = Case(name, request)
    with deterministic_algorithms(True):
        learners, cpu = [case.learner(there(gpu)) for _ in range(2)], case.learner(HERE)
        for number in range(3):
            rows = case.experience(cpu, number)
            assert taught(learners[0], rows) == taught(learners[1], rows)
    assert_same(*learners, rtol=0, atol=0)


GRAPHS = [
    "ppo",
    "a2c, of many",
    "impala",
    "mappo",
    "dqn",
    "dqn, states",
    "munchausen_dqn",
    "qr_dqn",
    "iqn",
    "rainbow",
    "sac",
    "sac, one",
]
GRAPHS += ["sac, states", "ddpg", "td3"]


@pytest.mark.parametrize("name", GRAPHS)
def test_whole_steps_are_cuda_graphs(name, request, cuda, monkeypatch):
    """Also of rows that are gathered there; and they learn as a CPU does."""
    kept, captured = [], device.captured
    monkeypatch.setattr(device, "captured", lambda *given: kept.append(given) or captured(*given))
    case = Case(name, request)
    cpu, gpu = case.learner(HERE), case.learner(there(cuda))
    rows = case.experience(cpu)
    ((table, items),) = gpu.items(rows)
    lying = build_table(TableSpec(table, "ring", 1000), torch.device(cuda))
    lying.try_insert(items)
    ((_, items),) = cpu.items(rows)
    for number in range(7):
        one = Sample(items, np.arange(len(items["action"])), np.full(len(items["action"]), 0.1))
        drawn = lying.try_sample(0, np.random.default_rng(0)).columns if table == "replay" else items
        told = [learner.update(sample) for learner, sample in ((cpu, one), (gpu, replace(one, columns=drawn)))]
        assert unexplained(told[1]) == pytest.approx(unexplained(told[0]), rel=2e-3, abs=2e-5), number
    assert gpu.placement.graphs.failed == ""
    assert kept
    assert_same(cpu, gpu)


def test_a_step_that_reads_a_number_back_runs_as_it_is_and_leaves_nothing(cuda):
    graphs, total = device.Graphs(), torch.zeros((), device=cuda)

    def step(x):
        total.add_(float(x.sum()))
        return total.clone()

    fast = graphs.of(step, torch.device(cuda))
    for number in range(6):
        assert float(fast(torch.ones(3, device=cuda))) == 3.0 * (number + 1)
    assert "captur" in graphs.failed, graphs.failed
    other = device.Graphs().of(lambda x: x.sum().clone(), torch.device(cuda))
    assert [float(other(torch.full((3,), float(k), device=cuda))) for k in range(5)] == [3.0 * k for k in range(5)]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        fast(torch.ones(1 << 20, device=cuda))
    assert torch.cuda.memory_allocated() <= before + (8 << 20)


@pytest.mark.parametrize("name", ["ppo", "a2c, of many", "dqn", "rainbow", "sac", "td3"])
def test_compiled_steps_are_cuda_graphs(name, request, gpu):
    compile_anew()
    case = Case(name, request)
    plain, compiled = case.learner(there(gpu)), case.learner(replace(there(gpu), compile=True))
    for number in range(4):
        rows = case.experience(plain, number)
        assert taught(compiled, rows) == pytest.approx(taught(plain, rows), rel=2e-3, abs=2e-5), number
    assert "(torch, compiled)" in str(compiled.placement), str(compiled.placement)
    assert_same(plain, compiled)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_products_of_fewer_digits(precision, compiled, request, gpu):
    if precision == "tf32" and gpu == "cpu":
        pytest.skip("tf32 is a GPU's")
    compile_anew()
    case = Case("a2c", request)
    learners = [case.learner(there(gpu)), case.learner(replace(there(gpu), precision=precision, compile=compiled))]
    rows = case.experience(learners[0])
    exact, rounded = (taught(learner, rows) for learner in learners)
    assert rounded["loss"] == pytest.approx(exact["loss"], abs=0.02)
    assert {array.dtype for array in learners[1].weights().values()} == {np.dtype(np.float32)}


def test_numbers_go_there_and_back(gpu):
    array = np.random.default_rng(0).integers(0, 255, (64, 3, 5)).astype(np.uint8)
    tensor = to_device(array, torch.device(gpu))
    assert tensor.device.type == gpu
    np.testing.assert_array_equal(to_numpy(tensor), array)
    assert scalars_to_host([tensor.sum(), tensor.float().mean()]) == pytest.approx([array.sum(), array.mean()])


def test_traces(gpu):
    """The scan over all rows at once, beside the compiled loop."""
    rng, n = np.random.default_rng(0), 500
    columns = {name: torch.from_numpy(rng.standard_normal(n)) for name in ("reward", "after", "logp", "value")}
    columns["ends"] = torch.from_numpy(rng.random(n) < 0.1)
    columns["ends"][-1] = True
    logp = columns["logp"] + torch.from_numpy(0.3 * rng.standard_normal(n))

    def traced(device: str, **how: bool) -> list[np.ndarray]:
        rows = {name: column.to(device) for name, column in columns.items()}
        value, options = rows.pop("value"), {"gamma": 0.97, "lam": 0.9, "rho_bar": 1.0, "c_bar": 1.0}
        return [to_numpy(found) for found in vtrace_targets(rows, value=value, logp=logp.to(device), **options, **how)]

    for one, other in zip(traced("cpu", compiled=True), traced(gpu, compiled=False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["kuhn_poker(players=3)", "leduc_poker"])
def test_game_trees(name, gpu):
    tree = compile_tree(name)
    rng = np.random.default_rng(0)
    tables = [tree.uniform(p) * rng.exponential(size=(5, *tree.uniform(p).shape)) for p in range(tree.num_players)]
    tables = [table / table.sum(axis=2, keepdims=True) for table in tables]
    found = []
    for place in ("cpu", gpu, gpu):
        tensors = TreeTensors(tree, place)
        given = [torch.from_numpy(table).to(place) for table in tables]
        plans = [tensors.realization(p, table) for p, table in enumerate(given)]
        answers = [*tensors.exploitability(plans), tensors.payoffs([plan[:3] for plan in plans]), tensors.values(plans)]
        found.append([to_numpy(answer) for answer in answers])
    for cpu, once, twice in zip(*found, strict=True):
        np.testing.assert_allclose(once, cpu, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(once, twice)


@pytest.mark.parametrize("algorithm", ["ppo", "exact"])
def test_a_whole_run(algorithm, gpu, tmp_path: Path, capsys):
    run = str(tmp_path / "run")
    line = ["train", "leduc", "--device", gpu, "--algorithm", algorithm, "generations=1", "response.episodes=2000"]
    assert main([*line, "--run-dir", run]) == 0
    place = "no device: its answers are computed" if algorithm == "exact" else gpu
    assert re.search(rf"device +{place}", capsys.readouterr().out)
    assert main(["resume", run, "--device", "cpu", "generations=2"]) == 0
    with Reader(Path(run)) as reader:
        assert len(reader.generations()) == 3


@pytest.mark.parametrize("minibatches", [1, 3])
def test_rounds_read_together_on_streams_of_their_own_are_those_read_one_by_one(
    minibatches, cuda, tmp_path: Path, monkeypatch
):
    """Of both players at the same time, or one after another; rollouts and updates are graphs."""
    settings = ["algorithm.batch=500", f"algorithm.minibatches={minibatches}", "algorithm.epochs=4"]
    settings += ["response.episodes=4000", "generations=3", "runtime.deterministic=true", f"runtime.device={cuda}"]

    def trained(name: str, seconds: float, *more: str) -> list[dict[str, bytes]]:
        monkeypatch.setattr(ondevice_rounds, "_SECONDS", seconds)
        run(load_scenario("leduc", [*settings, *more]), run_dir=tmp_path / name, report=False)
        files = sorted((tmp_path / name / "policies").rglob("*.safetensors"))
        return [{key: array.tobytes() for key, array in load_policy(file).weights().items()} for file in files]

    enqueue, failures = RoundsCollector._enqueue, set()

    def watched(self):
        burst = enqueue(self)
        failures.add((self._learner.placement.graphs.failed, self._playing(None)._rollouts.graphs.failed))
        return burst

    monkeypatch.setattr(RoundsCollector, "_enqueue", watched)
    together = trained("together", 1e9)
    assert failures == {("", "")}
    assert len(together) >= 6
    assert trained("apart", 0.0) == together
    assert trained("one by one", 1e9, "runtime.tasks=1") == together
