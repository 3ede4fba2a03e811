"""ludus doctor"""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ludus.cli.command import Command
from ludus.cli.output import facts, table, write

if TYPE_CHECKING:
    from ludus.algorithms.common.base import Algorithm, Learner
    from ludus.core.types import DeviceChoice, EnvSpec

_PACKAGES = ("numpy", "numba", "torch", "gymnasium")
_distributions = cache(packages_distributions)
_SECONDS = 3.0  # of each measurement


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-speed", action="store_true", help="skip the speed test")


def _execute(options: argparse.Namespace) -> int:
    facts("this machine", _machine())
    facts("extras", _extras())
    facts("versions", _untested())
    facts("devices", _places())
    if not options.no_speed:
        _show_speed()
    return 0


def _machine() -> Iterator[tuple[str, str]]:
    from ludus import __version__
    from ludus.core.machine import available_cpus

    yield "ludus", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield "cores", str(available_cpus())
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield "memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"
    yield "runtimes", ", ".join(_runtimes())
    for name in _PACKAGES:
        yield name, version(name)


def _extras() -> Iterator[tuple[str, str]]:
    """Yield which there are, and what brings the others."""
    from ludus.core.packages import EXTRAS, is_installed, named

    for extra in EXTRAS:
        yield extra, _versions(extra) if is_installed(extra) else f"no; `pip install {named(extra)}`"


def _versions(extra: str) -> str:
    """Return the packages of an extra, with their versions."""
    from ludus.core.packages import EXTRAS

    names = {name for module in EXTRAS[extra] for name in _distributions().get(module, ())}
    return ", ".join(f"{name} {version(name)}" for name in sorted(names, key=str.lower)) or "yes"


def _untested() -> Iterator[tuple[str, str]]:
    """Yield the packages that Ludus names and that have another version than the tests were run with (constraints.txt, a part of the
    distribution)."""
    tested = tested_versions()
    installed = {name: own for name in sorted(tested) if (own := _version(name))}
    others = {name: own for name, own in installed.items() if own.partition("+")[0] != tested[name]}
    yield "tested", f"{len(installed) - len(others)} of the {len(installed)} packages that Ludus uses here"
    for name, own in others.items():
        yield name, f"{own}, which was not tested; {tested[name]} was: `pip install '{name}=={tested[name]}'`"


def tested_versions() -> dict[str, str]:
    """Return the versions that were tested together, of the distributions that the metadata of Ludus names; of all where it has none."""
    from ludus.core.packages import DISTRIBUTION

    lines = files("ludus.cli").joinpath("constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    try:
        named = {_normalised(re.split(r"[^\w.-]", line)[0]) for line in requires(DISTRIBUTION) or ()}
    except PackageNotFoundError:  # a source tree that is not installed
        named = {_normalised(name) for name in pins}
    return {name: pin.strip() for name, pin in pins.items() if _normalised(name) in named}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str) -> str:
    """Return the installed version of a distribution; "" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _runtimes() -> Iterator[str]:
    """Those that a run can have here (`--runtime`)."""
    from ludus.core.machine import why_no_processes
    from ludus.core.packages import install_command

    yield "inprocess"
    yield f"no processes, since {why}" if (why := why_no_processes()) else "processes"
    yield "ray" if find_spec("ray") else f"no ray; `{install_command('ray')}` brings it"


def _places() -> Iterator[tuple[str, str]]:
    import torch

    from ludus.backend.device import AUTO, gpu_count, missing_compiler, require_gpu
    from ludus.core.errors import ConfigError

    yield "auto", AUTO
    for k in range(gpu_count()):
        card = torch.cuda.get_device_properties(k)
        yield (
            f"cuda:{k}",
            f"{card.name}, {card.total_memory / 2**30:.0f} GiB, compute capability {card.major}.{card.minor}",
        )
    if not gpu_count():
        try:
            require_gpu("cuda")
        except ConfigError as error:
            yield (
                "cards",
                str(error).partition(", and ")[2].partition(" Install one")[0].partition(" Look whether")[0],
            )
    for device in ("cpu", "cuda")[: 1 + bool(gpu_count())]:
        yield f"runtime.compile, {device}", missing_compiler(device) or "there is a compiler"
    for name, algorithm in _tasks():
        yield name, _where(algorithm)


# --------------------------------------------------------------------------------------------------------------------
# Both backends, on updates of the sizes that people learn with.


def _tasks() -> Iterator[tuple[str, Algorithm]]:
    from ludus.algorithms.on_policy.config import A2C
    from ludus.algorithms.ppo.config import PPO

    small = {"batch_unit": "decisions", "epochs": 4}
    yield "PPO, perceptron 64 × 64", PPO(batch=1024, hidden=(64, 64), **small)
    yield "PPO, perceptron 512 × 512", PPO(batch=4096, hidden=(512, 512), minibatches=4, **small)
    yield "PPO, GRU of 64", PPO(batch=1024, memory="gru", **small)
    yield "A2C, images 4 × 84 × 84", A2C(batch=256, network="nature")


def _where(algorithm: Algorithm) -> str:
    from ludus.backend.device import describe_device
    from ludus.core.types import DeviceChoice

    return describe_device(_learner(algorithm, _env(algorithm), DeviceChoice("auto")))


def _show_speed() -> None:
    from ludus.backend.device import gpu_count
    from ludus.core.machine import thread_limits
    from ludus.core.process_settings import standard_settings
    from ludus.core.types import DeviceChoice
    from ludus.runs.scenario_runtime import RuntimeChoice

    choices = {"cpu": DeviceChoice("cpu"), "cpu, torch": DeviceChoice("cpu", written=False)}
    choices |= {f"cuda:{k}": DeviceChoice(f"cuda:{k}") for k in range(gpu_count())}
    threads = RuntimeChoice().threads
    write(
        f"learning, rows × epochs a second, with the threads of a run (runtime.threads={threads}; about {_SECONDS:.0f} s each)\n"
    )
    with standard_settings(), thread_limits(torch_threads=threads):
        rows = [[name, *_speeds(algorithm, choices.values())] for name, algorithm in _tasks()]
    table(("update", *choices), rows)


def _speeds(algorithm: Algorithm, choices: Iterable[DeviceChoice]) -> Iterator[str]:
    """Yield the speed of each choice; of those that come to one device and backend, one is measured."""
    speed_of: dict[tuple[str, bool], str] = {}
    for choice in choices:
        update = _Update(algorithm, choice)
        if update.place not in speed_of:
            speed_of[update.place] = _speed(update)
        yield speed_of[update.place]


def _speed(update: _Update) -> str:
    update()  # kernels are compiled
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < _SECONDS:
        update()
        count += 1
    rate = count * update.rows / (time.perf_counter() - begun)
    return f"{rate / 1e6:.2f} M" if rate >= 1e5 else f"{rate / 1e3:.1f} k"


def _env(algorithm: Algorithm) -> EnvSpec:
    """Return what there is to be seen: images, or 32 numbers."""
    import numpy as np
    from gymnasium.spaces import Box, Discrete

    from ludus.core.types import AgentSpec, EnvSpec

    images = getattr(algorithm, "network", "mlp") == "nature"
    observation = Box(0, 255, (4, 84, 84), np.uint8) if images else Box(-np.inf, np.inf, (32,), np.float32)
    agents = (AgentSpec("player", 0, observation, Discrete(6)),)
    return EnvSpec(id="doctor", agents=agents, utility_range=((-1.0, 1.0),), symmetry=((0,),))


def _learner(algorithm: Algorithm, env: EnvSpec, choice: DeviceChoice) -> Learner:
    from ludus.algorithms.common.base import LearnerContext

    return algorithm.learner(LearnerContext(env, (0,), 0, device=choice))


class _Update:
    """One update of a learner from made-up experience, again and again. rows: with each epoch counted. place: device, and whether CPU
    kernels compute there."""

    def __init__(self, algorithm: Algorithm, choice: DeviceChoice) -> None:
        import numpy as np

        from ludus.backend.device import HasPlacement
        from ludus.policies.registry import build_policy
        from ludus.replay.base import Sample
        from ludus.testing.algorithm import synthetic_rollout

        env = _env(algorithm)
        self._learner = _learner(algorithm, env, choice)
        assert isinstance(self._learner, HasPlacement)
        self.place = self._learner.placement.device, self._learner.placement.written
        policy, segments = build_policy(self._learner.spec, self._learner.weights()), algorithm.collect().amount // 3
        rollout = synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=np.random.default_rng(0))
        (_, items), *_ = self._learner.items(rollout)
        self._sample = Sample(items, np.arange(len(items["action"])), np.ones(len(items["action"])))
        self.rows = rollout.num_rows * getattr(algorithm, "epochs", 1)

    def __call__(self) -> None:
        self._learner.update(self._sample)


COMMAND = Command(
    name="doctor",
    summary="Check the installation: devices, packages, update speed (about a minute).",
    examples=(
        ("ludus doctor", "the installation, and a speed test of both training backends"),
        ("ludus doctor --no-speed", "without the speed test"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
