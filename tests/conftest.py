"""Property tests try the same examples in every run, so that a change is what makes one fail; `make search` tries others. Torch has one
thread in each process of the tests, as it has under `make`: more threads than cores wait for each other. What JAX compiles is played for a
few steps, so that compiling it well takes longer than it saves. Tests marked `long` are slow ones that `make test-slow` leaves out."""

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch or numpy
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parents[1] / "build" / "config")  # marks of runs are no user's

CACHE = Path(__file__).parents[1] / "build" / "jax"
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(CACHE)
)  # what JAX compiled is there for the next run, and for other processes
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

if SET := os.environ.get("ATEN_CPU_CAPABILITY"):  # torch would take what it compiled for another instruction set
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}_{SET}")

# A run waits for the disk some ninety times, so that what it has written outlives a power cut: in memory that costs nothing.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # where pytest makes the folders of tests

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's script has it for what it starts with &
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what the tests start inherits that a Ctrl-C is heard

# How long an example takes says how busy the machine is: no deadline. A test that needs fewer examples, or more, says so itself.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("search", print_blob=True, deadline=None, max_examples=200)
settings.load_profile("fixed")

LONGEST = (
    "faults/test_kills.py",
    "runs/test_presets.py",
    "runs/test_runtimes.py",
    "runs/test_kill_and_resume.py",
    "runtime/test_ray_cluster.py",
    "runtime/test_parts_apart.py",
    "algorithms/test_compiled.py",
    "faults/test_failing_disk.py",
    "cli/test_processes_by_command.py",
    "cli/test_cli_experiments.py",
    "envs/test_jaxmarl.py",
    "envs/test_jumanji.py",
    "envs/test_football.py",
    "rollout/test_shared_inference",
    "ui/test_page",
    "runs/test_control_of_runs.py",
    "runs/test_football_path.py",
    "envs/test_pgx.py",
    "runs/test_processes.py",
    "runs/test_scripted_opponents.py",
    "runs/test_python_api.py",
    "training/test_process_group.py",
    "replay/test_weights.py",
    "replay/test_sharded_apart.py",
    "runtime/",
    "envs/test_pettingzoo.py",
    "rollout/test_hosts_apart.py",
    "algorithms/test_off_policy_learning.py",
    "docs/test_cluster_slurm.py",
    "benchmarks/test_gpu.py",
    "benchmarks/test_distributed.py",
    "ui/test_report_browser.py",
    "ui/test_server_fuzz.py",
    "training/test_callbacks.py",
    "algorithms/test_gates.py",
    "evaluation/test_tournament",
    "envs/",
    "training/test_circles.py",
    "runs/",
    "faults/",
    "docs/",
    "algorithms/",
)
"""What takes long is begun first, so that at the end no process works alone: beginnings of paths below tests/."""


NAMES = {
    "slow": ("mark.slow", "mark.long", "runtime_apart", "apart: str"),
    "long": ("mark.long",),
    "gpu": ("mark.gpu",),
}
"""Words by which a file with tests of a mark is known before it is imported. `apart` is a fixture that is slow on Ray."""

ALL_SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(slow|long)\b", re.MULTILINE)
"""How a file says that all of its tests are slow."""

DEVICE = os.environ.get("LUDUS_TEST_DEVICE", "cuda")
"""With `cpu`, tests of GPUs run on any machine, to see that they run."""


gc.disable()  # until all tests are imported: the collector would look through them again and again


def pytest_collection_finish() -> None:
    """What is imported stays, and is not looked through any more."""
    gc.enable()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Files are begun in the order of the items, and not, as xdist would have it, those of most tests first. Warnings of runs are errors
    nowhere: small runs have few updates, and end few episodes. Their own tests ask for them."""
    config.addinivalue_line("filterwarnings", "ignore::ludus.core.errors.RunWarning")
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@cache
def names(path: Path, mark: str) -> bool:
    """Whether the text of a file names a mark."""
    text = path.read_text(encoding="utf-8")
    return any(word in text for word in NAMES[mark])


@cache
def is_all_slow(path: Path) -> bool:
    return ALL_SLOW.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test that the run is for: importing all takes each process ten seconds."""
    if not collection_path.match("test_*.py"):
        return None
    wanted = config.option.markexpr
    mark = wanted.partition(" ")[0]
    if mark in NAMES:
        return None if names(collection_path, mark) else True
    return True if wanted.startswith("not slow") and is_all_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker("slow")
        for mark in NAMES:
            if item.get_closest_marker(mark) is not None and not names(item.path, mark):
                raise pytest.UsageError(f"{item.nodeid} is {mark}, and its file has none of the words {NAMES[mark]}")

    def place(item: pytest.Item) -> int:
        path = item.nodeid.removeprefix("tests/")
        return next((k for k, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    items.sort(key=place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Torch is loaded, and asked, where somebody wants tests of GPUs only."""
    if item.get_closest_marker("gpu") is not None and DEVICE == "cuda":
        from ludus.backend.device import gpu_count

        if not gpu_count():
            pytest.skip("there is no GPU")


@pytest.fixture
def gpu() -> str:
    """The device that tests marked `gpu` are of."""
    return DEVICE


@pytest.fixture(scope="session")
def cartpole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes of CartPole whose actions are uniform ones, as `ludus record` writes them."""
    from ludus.apps.episodes.trajectory_export import record_trajectories
    from ludus.core.types import Mixture, PolicyRef, PolicySpec
    from ludus.envs.registry import make_env
    from ludus.policies.registry import build_policy

    path = tmp_path_factory.mktemp("recorded") / "expert.parquet"
    anyone = build_policy(PolicySpec("random", {"actions": 2}), {})
    alone = Mixture.product({0: ([PolicyRef(0, "anyone")], [1.0])})
    record_trajectories(path, make_env("gymnasium/CartPole-v1", num_envs=2), alone, lambda _: anyone, episodes=2)
    return path


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[None]:
    """Holds a local Ray open, which all runs and runtimes of the module then share. For tests that do not end it."""
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime = RayRuntime()
    yield
    runtime.close()


@pytest.fixture(params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def apart(request: pytest.FixtureRequest) -> str:
    """A kind of runtime whose parts are processes. All that use Ray share one."""
    if request.param == "ray":
        request.getfixturevalue("shared_ray")
    return str(request.param)


@pytest.fixture
def runtime_apart(apart: str) -> Iterator[Any]:
    """One of that kind."""
    from ludus.runtime.inprocess import build_runtime

    runtime = build_runtime(apart)
    yield runtime
    runtime.close()
