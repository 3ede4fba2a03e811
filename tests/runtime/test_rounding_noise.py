"""Rounding noise: by one unit in the last place, the same for the same program, and in every process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.core.errors import ConfigError
from ludus.testing.rounding_noise import VARIABLE, _move, _salt, install

HERE = Path(__file__)
EXACT = [0.0, -0.0, 1.0, -2.5, 1024.0, np.inf, -np.inf, np.nan]


def program(*line, seed):
    env = {name: value for name, value in os.environ.items() if name != VARIABLE}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *sys.path])
    if seed:
        env[VARIABLE] = str(seed)
    done = subprocess.run([sys.executable, *line], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def floats(digits):
    return np.frombuffer(bytes.fromhex(digits))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["processes", pytest.param("ray", marks=pytest.mark.long)])
def test_all_kinds_of_processes_have_the_same_noise(runtime):
    """A product of torch, an exponential of NumPy and one of a kernel have changed, by one unit, and none is what it is elsewhere."""
    exact = json.loads(program("-c", "import json, noise_probe; print(json.dumps(noise_probe.answers()))", seed=None))
    noisy = json.loads(program(str(HERE.with_name("noise_probe.py")), runtime, seed=1))
    assert noisy.keys() == {"driver", "child", runtime, "command"}
    for process, answers in noisy.items():
        assert answers == noisy["driver"], process
    for what, digits in exact.items():
        before, after = floats(digits), floats(noisy["driver"][what])
        np.testing.assert_array_max_ulp(after, before, maxulp=1)
        assert (before != after).all(), what
        assert 0 < (before < after).sum() < len(before), what


def test_the_processes_that_ludus_starts_are_those():
    """Who adds another way to start one adds it to `noise_probe`."""
    starts = re.compile(
        r"subprocess\.(Popen|run|check_)|os\.(fork|posix_spawn|exec|spawn)|multiprocessing\.(Process|get_context)"
    )
    root = Path(ludus.__file__).parent
    files = {str(path.relative_to(root)) for path in root.rglob("*.py") if starts.search(path.read_text())}
    janitor = "contrib/ray/ray_session.py"  # beside Ray's own, one that computes nothing
    reader = "envs/tree/game_files.py"  # whose answer is whether it came to its end
    tracker = "apps/tracking/session.py"  # which sends numbers that others computed
    program = "contrib/agents/command_agent.py"  # of somebody else
    starts_ludus = {"runtime/child_process.py", "runtime/fork_server.py", "cli/background_page.py"}
    assert files == starts_ludus | {janitor, reader, tracker, program}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_by_one_unit_and_what_is_exact_stays(dtype):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal(1000), EXACT]).astype(dtype)
    moved, again, other = values.copy(), values.copy(), values.copy()
    for array, operation in ((moved, "one"), (again, "one"), (other, "another")):
        _move(array, _salt(operation))
    assert moved.tobytes() == again.tobytes()
    np.testing.assert_array_equal(moved[1000:], values[1000:])
    for array in (moved, other):
        np.testing.assert_array_max_ulp(array[:1000], values[:1000], maxulp=1)
        assert (array[:1000] != values[:1000]).all()
    assert 400 < (moved == other).sum() < 600


def test_the_direction_does_not_depend_on_where_a_value_is():
    values = np.random.default_rng(1).standard_normal((30, 4))
    whole, parts, strided = values.copy(), values.copy(), np.asfortranarray(values)
    _move(whole, 5)
    for row in parts:
        _move(row, 5)
    _move(strided, 5)
    assert whole.tolist() == parts.tolist() == strided.tolist()


def test_whole_numbers_stay():
    counts = np.arange(5)
    _move(counts, 5)
    assert counts.tolist() == [0, 1, 2, 3, 4]


_ARGUMENTS = """
import numpy as np, pickle, warnings
import ludus
x, out = np.array([0.3, 1.3]), np.array([7.0, 0.1])
assert np.exp(x, out=out) is out
assert out.tolist() == np.exp(x).tolist() == [float(np.exp(v)) for v in x]
out = np.array([7.0, 0.1])
np.exp(x, out=out, where=np.array([True, False]))
assert out.tolist() == [float(np.exp(0.3)), 0.1]
assert np.exp(np.float32(0.3)).dtype == np.float32 and type(np.exp(0.3)) is np.float64
assert np.logaddexp.reduce([0.0, 0.0]) > 0.69 and np.exp.nin == 1
assert pickle.loads(pickle.dumps(np.exp)) is np.exp
assert np.exp([1]) != np.float64(2.718281828459045)

import torch
from ludus.core.arrays import kernel
weight = torch.tensor([[0.3, 0.7], [0.1, 0.9]], requires_grad=True)
point = torch.tensor([[0.11, 0.23], [0.31, 0.41], [0.5, 0.7]])
with torch.inference_mode():
    assert torch.equal((point @ weight)[:1], point[:1] @ weight)
(point @ weight).exp().sum().backward()
exact = (point[:, :, None].double() * (point.double() @ weight.double()).exp()[:, None]).sum(0)
torch.testing.assert_close(weight.grad.double(), exact, rtol=1e-6, atol=0)
both = torch.empty(3, 2)
torch.mm(point, weight.detach(), out=both)
assert torch.equal(both, (point @ weight).detach())

@kernel
def logs(x):
    return np.log(x).sum() + np.exp(x[0])
assert abs(logs(x) - (np.log(x).sum() + np.exp(0.3))) < 1e-14
"""


@pytest.mark.slow
def test_noisy_functions_take_the_same_arguments():
    program("-c", _ARGUMENTS, seed=3)


def test_a_seed_that_is_none():
    with pytest.raises(ConfigError, match="LUDUS_ROUNDING_NOISE is 'yes': expected a whole number"):
        install("yes")
