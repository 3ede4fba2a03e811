"""Whole runs on a GPU, as a user's, beside the same run on one core or another's program.

`leduc`: the preset with settings that suit a GPU (`SETTINGS`: fewer and larger updates, since a GPU's step costs the same for some hundred
decisions as for some ten thousand), on the GPU and on one core; and the preset's own settings on one core. Database and policy files are
included, the report is not. The clock starts after a smaller run: what compiles is counted apart, as `start`.

`nash_conv`: what both come to, over 24 seeds that no setting was chosen by; 6 on the GPU where a run takes more than 10 s. Nothing is timed
there, and runs share the machine. The bar is the upper end of a two-sided 95% interval of the ratio of means by Fieller's theorem, for
independent samples of unequal variances with Welch's degrees of freedom (E. C. Fieller 1954, JRSS B 16, 175–185).

`start`: seconds from the shell to the end of generation 1, with the caches of torch, Triton and CUDA empty (cold) and as that run has left
them (warm), beside one core, warm. Numba's caches are warm: `benchmarks.cold_start` measures them.

`nash_conv_program`: the same by the program that a GPU runs, rollouts and updates with rows of weight 0, on one core, where a fake runs its
graphs. It says what the GPU's program comes to, not what a GPU does.

`host`: the same run on one core, where captured graphs do nothing: what is left are the host's work, and each form's first two rounds. What
is learned is nonsense; it is as much work.

`launches`: of one rollout of the preset, and of one update, by torch's profiler: kernels, graphs, copies and fills that the host starts,
those of a rollout for each of the steps that a game can take; and host time, without the profiler. The bar of time is two launches of the
33 µs that one took when a step had 77 (an H200, 2026-11-28).

`cartpole`: PPO on Gymnasium's CartPole with `--device cuda`, what compiles included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from benchmarks.gpu_options import Measure, Options, contestant, unbuilt
from benchmarks.harness import Bar, Contestant, Medians
from ludus.core.errors import RunError

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario

SECONDS, NASH_CONV, RETURN = "seconds", "nash_conv", "return"
COLD, WARM = "seconds to generation 1, cold", "seconds to generation 1, warm"
LAUNCHES, STEP_TIME, TIME_EACH = "launches per game step", "host µs per game step", "host µs per launch"
UPDATE, UPDATE_TIME = "launches per update", "host µs per update"
SETTINGS = ("algorithm.batch=1500", "algorithm.epochs=10")
"""Of the preset `leduc` on a GPU."""
SEEDS = tuple(range(4, 28))
"""None that SETTINGS was chosen by."""
SLOW, FEW = 10.0, 6
"""Seconds of a run from which on the GPU plays so many seeds."""

# --------------------------------------------------------------------------------------------------------------------
# The preset `leduc`.


def there(options: Options) -> tuple[str, ...]:
    """Settings of a run that plays and learns on the device."""
    return ("runtime.environments=device", f"runtime.device={options.device}", *SETTINGS)


def leduc(options: Options, settings: Sequence[str]) -> Mapping[str, float]:
    """Seconds of the preset, and what it comes to."""
    with tempfile.TemporaryDirectory() as folder:
        small = ["generations=1", "response={episodes: 3000}"]
        timed_run(_leduc(options, [*settings, *small]), Path(folder) / "warm-up")
        seconds, result = timed_run(_leduc(options, settings), Path(folder) / "run")
    return {SECONDS: seconds, NASH_CONV: result.nash_conv[-1]}


def nash_conv(options: Options, settings: Sequence[str]) -> Mapping[str, float]:
    """What it comes to."""
    with tempfile.TemporaryDirectory() as folder:
        _, result = timed_run(_leduc(options, settings), Path(folder) / "run")
    return {NASH_CONV: result.nash_conv[-1]}


def nash_conv_program(options: Options) -> Mapping[str, float]:
    """What the GPU's program comes to on one core."""
    from ludus.testing.cuda_graphs import FakeGraphs

    with FakeGraphs().installed():
        return nash_conv(options, there(Options("cpu", options.seed, options.quick)))


def host_part(options: Options) -> Mapping[str, float]:
    """Seconds of the run where graphs, once captured, do nothing."""
    from ludus.backend import device
    from ludus.testing.cuda_graphs import FakeGraphs

    with FakeGraphs().installed() as fake:
        capture = fake.capture

        def captured(*args: Any) -> Any:
            answer, _ = capture(*args)
            return answer, lambda: None

        with patch.object(device, "captured", captured):
            return {SECONDS: leduc(options, there(Options("cpu", options.seed, options.quick)))[SECONDS]}


def _leduc(options: Options, settings: Sequence[str]) -> Scenario:
    from ludus.runs.scenario_files import load_scenario

    small = ["generations=1", "response={episodes: 3000}"] if options.small else []
    return load_scenario("leduc", [*settings, *small], options.seed)


def timed_run(scenario: Scenario, folder: Path, **more: Any) -> tuple[float, Any]:
    """Seconds, and the result."""
    from ludus.runs.runner import run

    begun = time.perf_counter()
    result = run(scenario, run_dir=folder, report=False, **more)
    return time.perf_counter() - begun, result


def ratio_interval(over: Sequence[float], under: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """The two-sided interval of a ratio of means, by Fieller's theorem; infinite where the mean below may be 0. Both samples have at least
    two values."""
    from scipy.stats import t as student

    a, b = fmean(over), fmean(under)
    va, vb = variance(over) / len(over), variance(under) / len(under)
    if va + vb == 0:
        return a / b, a / b
    share = (a / b) ** 2 * vb
    freedom = (va + share) ** 2 / (va**2 / (len(over) - 1) + share**2 / (len(under) - 1))
    t2 = float(student.ppf((1 + level) / 2, freedom)) ** 2
    below = b * b - t2 * vb
    if below <= 0:
        return float("-inf"), float("inf")
    half = max(0.0, (a * b) ** 2 - (a * a - t2 * va) * below) ** 0.5
    return (a * b - half) / below, (a * b + half) / below


# --------------------------------------------------------------------------------------------------------------------
# What compiles, and what is launched.


def start(options: Options) -> Mapping[str, float]:
    """Seconds of commands, after one that compiles what the CPU needs."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            name: f"{folder}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
        }
        _first_generation("cpu", options, Path(folder) / "before", {})
        cold, warm = (
            _first_generation(options.device, options, Path(folder) / name, caches) for name in ("cold", "warm")
        )
    return {COLD: cold, WARM: warm}


def start_here(options: Options) -> Mapping[str, float]:
    """On one core, warm."""
    with tempfile.TemporaryDirectory() as folder:
        _first_generation("cpu", options, Path(folder) / "before", {})
        return {WARM: _first_generation("cpu", options, Path(folder) / "warm", {})}


def _first_generation(device: str, options: Options, folder: Path, environment: Mapping[str, str]) -> float:
    """Seconds from the start of a command to its line about generation 1."""
    small = ["response={episodes: 1500}"] if options.small else []
    command = ["train", "leduc", "generations=1", *small, "--device", device, "--seed", str(options.seed)]
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", "from ludus.cli.main import script; script()", *command, "--run-dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        text=True,
    ) as process:
        said = []
        seconds = None
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if seconds is None and line.startswith("generation 1 "):
                seconds = time.perf_counter() - begun
    if process.returncode or seconds is None:
        raise RunError(f"the command ended with {process.returncode}: {''.join(said)[-2000:]}")
    return seconds


_LAUNCH = re.compile(r"(cu|cuda)(LaunchKernel|GraphLaunch|Memcpy|Memset)")


class _Launches:
    """Launches and host seconds of a method's calls from the fifth of an object on, when all that is captured has been: every other one is
    profiled. On a CPU operations of torch are counted instead."""

    def __init__(self, cls: type, name: str, *, small: bool) -> None:
        from torch.profiler import ProfilerActivity

        self._method, self._small = getattr(cls, name), small
        self._activities = [ProfilerActivity.CPU, *(() if small else (ProfilerActivity.CUDA,))]
        self._calls: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self.counts, self.seconds = list[int](), list[float]()
        this = self

        def watched(self: object, *args: Any, **kwargs: Any) -> Any:
            return this._call(self, *args, **kwargs)

        setattr(cls, name, watched)
        self.end = partial(setattr, cls, name, self._method)

    def _call(self, owner: object, *args: Any, **kwargs: Any) -> Any:
        from torch.profiler import profile

        call = self._calls[owner] = self._calls.get(owner, 0) + 1
        if call < 5 or call % 2:
            begun = time.perf_counter()
            answer = self._method(owner, *args, **kwargs)
            if call >= 5:
                self.seconds.append(time.perf_counter() - begun)
            return answer
        with profile(activities=self._activities) as seen:
            answer = self._method(owner, *args, **kwargs)
        names = [event.name for event in seen.events()]
        self.counts.append(
            sum(name.startswith("aten::") if self._small else bool(_LAUNCH.match(name)) for name in names)
        )
        return answer


def launches(options: Options) -> Mapping[str, float]:
    """Of rollouts and updates, as the host enqueues them."""
    from ludus.algorithms.on_policy.learner import OnPolicyLearner
    from ludus.rollout.ondevice_trees import TreePlay
    from ludus.runs.scenario_files import load_scenario

    length = ("generations=1", "response={episodes: 9000}") if options.small else ("generations=2",)
    scenario = load_scenario("leduc", [*there(options), *length], options.seed)
    played = _Launches(TreePlay, "enqueue", small=options.small)
    updated = _Launches(OnPolicyLearner, "learn" if options.small else "enqueue_update", small=options.small)
    try:
        with tempfile.TemporaryDirectory() as folder:
            timed_run(scenario, Path(folder) / "run")
    finally:
        played.end()
        updated.end()
    spec = scenario.env.make(num_envs=1).spec
    if not played.counts or not updated.counts or spec.max_decisions is None:
        raise RunError("no round was played on the device")
    steps = spec.max_decisions * spec.num_players
    started, lasted = median(played.counts), median(played.seconds)
    return {
        LAUNCHES: started / steps,
        STEP_TIME: 1e6 * lasted / steps,
        TIME_EACH: 1e6 * lasted / started,
        UPDATE: median(updated.counts),
        UPDATE_TIME: 1e6 * median(updated.seconds),
    }


# --------------------------------------------------------------------------------------------------------------------
# Other environments.


def cartpole(options: Options, *, here: bool = False) -> Mapping[str, float]:
    """Seconds of a run, and the newest return in training. here: on one core."""
    from ludus.runs.scenario_files import load_scenario

    small = ["response={decisions: 4000}"] if options.small else []
    settings = [f"runtime.device={'cpu' if here else options.device}", *small]
    scenario = load_scenario("gymnasium/CartPole-v1", settings, options.seed, algorithm="ppo")
    watch = watch_run()
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = timed_run(scenario, Path(folder) / "run", observer=watch)
    return {SECONDS: seconds, RETURN: watch.newest[RETURN]}


def watch_run() -> Any:
    """An observer that keeps the newest figures of training (`newest`) and a run's `counters`."""
    from ludus.storage.base import NullObserver, RunSummary

    class Watch(NullObserver):
        def __init__(self) -> None:
            self.newest: dict[str, float] = {}
            self.counters: dict[str, int] = {}

        def task_progress(self, fraction: float | None, metrics: Mapping[str, float]) -> None:
            self.newest |= metrics

        def run_finished(self, summary: RunSummary) -> None:
            self.counters = dict(summary.counters)

    return Watch()


# --------------------------------------------------------------------------------------------------------------------
# Who is measured, and what is wanted.

KINDS: Mapping[str, Measure] = {
    "leduc": lambda options: leduc(options, there(options)),
    "leduc_core": lambda options: leduc(options, ("runtime.device=cpu", *SETTINGS)),
    "leduc_core_own": lambda options: leduc(options, ("runtime.device=cpu",)),
    "nash_conv_gpu": lambda options: nash_conv(options, there(options)),
    "nash_conv_core": lambda options: nash_conv(options, ("runtime.device=cpu", *SETTINGS)),
    "nash_conv_program": nash_conv_program,
    "leduc_host": host_part,
    "start": start,
    "start_core": start_here,
    "launches": launches,
    "cartpole": cartpole,
    "cartpole_core": partial(cartpole, here=True),
}
LEDUC, LEDUC_CORE = "preset leduc, GPU", "preset leduc, one core, same settings"
LEDUC_OWN = "preset leduc, one core, its own settings"
NASH_CONVS = "preset leduc, GPU, NashConv", "preset leduc, one core, same settings, NashConv"
HOST = "preset leduc, the host's part of the GPU's program"
PROGRAM = "preset leduc, one core by the GPU's program, NashConv"
START, START_CORE, LAUNCHED = "start of preset leduc, GPU", "start of preset leduc, one core", "rollout of preset leduc"
CARTPOLE, CARTPOLE_CORE = "CartPole by PPO, GPU", "CartPole by PPO, one core"
SHOWN = (
    (LEDUC, SECONDS),
    (LEDUC_CORE, SECONDS),
    (LEDUC_OWN, SECONDS),
    (HOST, SECONDS),
    (START, COLD),
    (START, WARM),
    (START_CORE, WARM),
    (LAUNCHED, LAUNCHES),
    (LAUNCHED, TIME_EACH),
    (CARTPOLE, SECONDS),
    (CARTPOLE_CORE, SECONDS),
)
"""Figures that the page has in rows of their own."""


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    few = SEEDS[:3]
    return (
        contestant(LEDUC, "leduc", device, seeds=few, quick_seeds=few[:1]),
        contestant(LEDUC_CORE, "leduc_core", device, seeds=few, quick_seeds=few[:1]),
        contestant(LEDUC_OWN, "leduc_core_own", device, seeds=few, quick_seeds=few[:1]),
        contestant(NASH_CONVS[0], "nash_conv_gpu", device, seeds=SEEDS, quick_seeds=SEEDS[:2]),
        contestant(NASH_CONVS[1], "nash_conv_core", device, seeds=SEEDS, quick_seeds=SEEDS[:2]),
        contestant(PROGRAM, "nash_conv_program", device, seeds=SEEDS, quick_seeds=SEEDS[:2]),
        contestant(HOST, "leduc_host", device, seeds=few, quick_seeds=few[:1]),
        contestant(START, "start", device),
        contestant(START_CORE, "start_core", device),
        contestant(LAUNCHED, "launches", device),
        contestant(CARTPOLE, "cartpole", device),
        contestant(CARTPOLE_CORE, "cartpole_core", device),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def upper(m: Medians, over_name: str = NASH_CONVS[0]) -> float:
        over, under = (m.values(name, NASH_CONV) for name in (over_name, NASH_CONVS[1]))
        return ratio_interval(over, under)[1] if min(len(over), len(under)) > 1 else float("nan")

    return (
        Bar(f"{LEDUC}, a whole run", "<= 8", lambda m: m(LEDUC, SECONDS), unit="s", quick=gpu),
        Bar(f"{LEDUC}, a whole run, aim", "<= 3", lambda m: m(LEDUC, SECONDS), unit="s", quick=gpu),
        Bar(f"{LEDUC}, NashConv over one core's with the same settings, upper 95% limit", "<= 1.15", upper, quick=gpu),
        Bar(
            f"{PROGRAM}, over that core's with the same settings, upper 95% limit",
            "<= 1.15",
            partial(upper, over_name=PROGRAM),
            quick=gpu,
        ),
        Bar(
            f"{START}, nothing compiled before, beyond one core's",
            "<= 3",
            lambda m: m(START, COLD) - m(START_CORE, WARM),
            unit="s",
            quick=gpu,
        ),
        Bar(f"{LAUNCHED}, launches per game step", "<= 2", lambda m: m(LAUNCHED, LAUNCHES), quick=gpu),
        Bar(f"{LAUNCHED}, host time per game step", "<= 66", lambda m: m(LAUNCHED, STEP_TIME), unit="µs", quick=gpu),
        Bar(f"{CARTPOLE}, a whole run", "<= 20", lambda m: m(CARTPOLE, SECONDS), unit="s", quick=gpu),
        unbuilt("phantom_ttt and dark_hex(3) compiled for a GPU, steps", ">= 1e9", "not built", unit="/s"),
        unbuilt("other games compiled for a GPU, steps", ">= 1e8", "not built", unit="/s"),
    )
