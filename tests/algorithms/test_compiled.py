"""Steps that torch compiles: the same as those that it does not; and what is told where nothing is compiled."""

from __future__ import annotations

import re
import shutil
import warnings
from dataclasses import dataclass

import pytest
import torch
from test_devices import CASES, LITTLE, TORCH, Case, assert_learn_alike
from torch import Tensor

from ludus.algorithms.on_policy.batch import Batch
from ludus.backend import device
from ludus.backend.device import Placement, UpdateCost, resolve_placement
from ludus.cli.main import main
from ludus.core.types import DeviceChoice

COMPILE = DeviceChoice("cpu", written=False, compile=True)
ONE_ROW = UpdateCost(5_000, 750, has_cpu_kernel=False, no_compile_reason="")
UNCOMPILED = {
    "it remembers, and its sequences have many lengths": (
        *("ppo, gru", "ppo, gru by agent", "impala, lstm", "happo, gru", "hatrpo, gru, shared", "coppo, gru by agent"),
        *("vmpo, gru by agent", "coma, gru"),
    ),
    "its steps are no single function": (
        *("nfsp", "r2d2", "qmix", "qmix, gru", "qmix, by agent", "vdn", "qplex", "cw_qmix", "cw_qmix, gru", "ow_qmix"),
        *("cds_qmix", "cds_qmix, gru", "alphazero", "muzero"),
    ),
    "its groups have many sizes": ("mat", "mat_dec", "mat, boxes"),
    "Data-dependent": ("ppo, by agent", "vmpo, box"),
}  # fmt: skip
FAST = {"ppo", "qmix"}
SAME = {
    *("mmd, moving", "rnad, magnet", "dqn, states, double", "dqn, dueling", "nfsp, states", "ddpg, twin"),
    *("a2c, rnd", "dqn, icm", "sac, one", "mpo, states", "maddpg, cold"),
}
"""Cases of functions that are compiled for others."""
REASONS = {name: reason for reason, names in UNCOMPILED.items() for name in names}
LONG = REASONS.keys() - {names[0] for names in UNCOMPILED.values()} | {
    name for name in CASES.keys() - REASONS.keys() if "," in name and name.partition(",")[0] in CASES
}
"""Cases for whose reason, or whose algorithm, another one stands."""


def marks(name):
    return [] if name in FAST else [pytest.mark.long if name in LONG else pytest.mark.slow]


def compile_by(monkeypatch, backend):
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: compiler(function, **{**how, "backend": backend}))
    monkeypatch.setattr(device, "missing_compiler", lambda device: "")
    torch._dynamo.reset()


@pytest.fixture
def compiles(monkeypatch):
    """Compiles to what torch does anyway, which takes no seconds. Each of these times is counted."""
    found = []

    def backend(graph, inputs):
        found.append(len(inputs))
        return graph.forward

    compile_by(monkeypatch, backend)
    return found


def both_learn(case, *, sizes=1):
    """Compiled and not, from the same experience."""
    plain, compiled = case.learner(DeviceChoice("cpu", written=False)), case.learner(COMPILE)
    assert_learn_alike(case, plain, compiled, updates=2, sizes=sizes)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in CASES if name not in SAME])
def test_a_whole_step_is_one_graph(name, request, compiles):
    """Of every learner, or it says why not; whatever the coefficients of its loss are just now."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", DeprecationWarning)  # which torch's parts give of each other
        told = str(both_learn(Case(name, request), sizes=1 + (name in FAST)).placement)
    if name in REASONS:
        assert f"; not compiled: {REASONS[name]}" in told
    else:
        assert told.startswith("cpu (torch, compiled): as asked for")
        assert not told.endswith("others are not")
        assert 1 <= len(compiles) <= (4 if name in FAST else 2), compiles  # of a size, the critics' and the actor's


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler, which torch compiles with")
@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.long), "sac"])  # of either shell; a minute each
def test_compiled_steps_are_the_same(name, request):
    torch._dynamo.reset()
    assert str(both_learn(Case(name, request)).placement) == "cpu (torch, compiled): as asked for"


@pytest.mark.slow
def test_results_say_that_steps_were_compiled(compiles, tmp_path, capsys):
    """Of rollouts of at least so many decisions, which are seldom as many."""
    line = ["train", "gymnasium/CartPole-v1", "--algorithm", "a2c", "--device", "cpu", "runtime.compile=true"]
    more = ["algorithm.normalise_observations=true", "response.decisions=4000", "generations=1"]
    assert main([*line, *more, "--run-dir", str(tmp_path / "run")]) == 0
    told = re.findall(r"(?m)^ *device +(.+)", capsys.readouterr().out)
    assert told == ["cpu (torch, compiled): as asked for; autograd learns normalisation"]
    assert len(compiles) <= 3


# ------------------------------------------------------------------ where nothing is compiled


@pytest.mark.parametrize(
    ("choice", "work", "reason"),
    [
        (DeviceChoice("auto", compile=True), LITTLE, "cpu (CPU kernels): there is no GPU; not compiled: there is nothing to"),
        (DeviceChoice("cpu", compile=True), UpdateCost(1, 1, False), "cpu (torch): as asked for; not compiled: its steps are"),
        (DeviceChoice("cpu", compile=True), ONE_ROW, "cpu (torch): as asked for; not compiled: there is no C++ compiler 'no-such-one'"),
        (DeviceChoice("cuda", compile=True), ONE_ROW, "cuda:0 (torch): as asked for; not compiled: Triton is not installed"),
        (DeviceChoice("meta", compile=True), ONE_ROW, "meta (torch): as asked for; not compiled: there are no numbers"),
        (DeviceChoice("cpu"), ONE_ROW, "cpu (torch): as asked for"),
    ],
)  # fmt: skip
def test_missing_compiler_is_named(monkeypatch, choice, work, reason):
    monkeypatch.setenv("CXX", "no-such-one")
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    monkeypatch.setattr(device, "gpu_count", lambda: int(choice.device == "cuda"))
    place = resolve_placement(choice, work)
    assert str(place).startswith(reason)
    assert place.compiled(doubled) is doubled


@dataclass(frozen=True)
class Rows:
    x: Tensor
    mask: None = None


def doubled(rows: Rows, by: tuple[float, ...] = (2.0,)) -> Tensor:
    return rows.x * by[0]


def place() -> Placement:
    return resolve_placement(DeviceChoice("cpu", compile=True), ONE_ROW)


@pytest.mark.slow
def test_a_function_is_compiled_for_few_sizes_and_all_numbers(compiles):
    here = place()
    function = here.compiled(doubled)
    for rows in (8, 7, 8, 6, 5, 5):
        for by in (1.5, 2.5, 0.0):
            assert function(Rows(torch.ones(rows)), (by,)).tolist() == [by] * rows
    assert (len(compiles), str(here)) == (4, "cpu (torch, compiled): as asked for")
    for rows in range(9, 30):
        assert function(Rows(torch.ones(rows)), (3.0,)).tolist() == [3.0] * rows
    assert len(compiles) == 4
    assert str(here).endswith("; batches of 4 sizes are compiled, others are not")


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, 8])
def test_rows_that_weigh_nothing_make_sizes_few(most):
    columns = {name: torch.randn(600) for name in ("logp", "advantage", "target", "value")}
    batch = Batch(torch.randn(600, 3), None, torch.randint(4, (600,)), **columns)
    sizes = set()
    for count in range(257, 513):
        part = batch.part(slice(count))
        padded = part.padded(sizes=most)
        sizes.add(len(padded))
        assert len(padded) <= count * (1 + 1 / most)
        torch.testing.assert_close(padded.x[:count], part.x)
        torch.testing.assert_close(padded.mean(padded.target.square()), part.mean(part.target.square()))
    assert len(sizes) == most


def test_uncompilable_function_runs_uncompiled_with_reason(compiles):
    seen = []

    def looks(x: Tensor) -> Tensor:
        seen.append(1)
        return x * 2.0 if float(x.sum()) > 0.0 else x

    here = place()
    function = here.compiled(looks)
    assert function(torch.ones(3)).tolist() == [2.0] * 3
    assert function(-torch.ones(3)).tolist() == [-1.0] * 3
    assert not compiles
    assert "; not compiled: " in str(here)
    assert "data-dependent" in here.compiler.failed
    assert here.compiled(doubled) is doubled  # of this learner nothing is


def test_a_compiler_that_fails_is_not_asked_again(monkeypatch):
    asked = []

    def backend(graph, inputs):
        asked.append(1)
        raise OSError("no space left on device")

    compile_by(monkeypatch, backend)
    here = place()
    function = here.compiled(doubled)
    for _ in range(3):
        assert function(Rows(torch.ones(3))).tolist() == [2.0] * 3
    assert len(asked) == 1
    assert "no space left on device" in str(here)


def test_a_compiler_that_fails_at_the_gradient_is_not_asked_again(monkeypatch):
    """Torch compiles it when it is asked for, which is after the function has answered."""
    from torch._dynamo.backends.common import aot_autograd

    asked = []

    def fails(graph, inputs):
        asked.append(1)
        raise OSError("no space left on device")

    compile_by(monkeypatch, aot_autograd(fw_compiler=lambda graph, inputs: graph.forward, bw_compiler=fails))
    here, weight = place(), torch.ones(3, requires_grad=True)

    def weighed(x: Tensor) -> Tensor:
        return (x * weight.sin()).sum()

    function = here.compiled(weighed)
    for _ in range(3):
        torch.autograd.backward(function(torch.ones(3)))
    torch.testing.assert_close(weight.grad, 3 * torch.ones(3).cos())
    assert len(asked) == 1
    assert "no space left on device" in str(here)


def test_compiling_calls_a_function_once(compiles):
    """Statistics of its modules move once, and random numbers are used up once."""
    norm = torch.nn.BatchNorm1d(2)
    function = place().compiled(lambda x: norm(x).sum())
    torch.autograd.backward(function(torch.randn(5, 2)))
    assert int(norm.num_batches_tracked) == 1


def test_errors_of_the_function_are_its_own(compiles):
    def fails(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        place().compiled(fails)(torch.ones(3))


def test_those_that_are_not_perceptrons_are_compiled_as_well():
    """The contract above covers the backend of modules, and that of perceptrons, if these are not written out."""
    assert TORCH - REASONS.keys()
    assert CASES.keys() - TORCH - REASONS.keys()
