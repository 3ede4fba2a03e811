"""Whole runs in environments that JAX compiles, beside programs that are compiled whole: environment steps a second, end to end.

`smax`, `overcooked`: presets, after a smaller run. JaxMARL's own MAPPO and IPPO, with its own settings, take as many steps, and compile
before their clock starts: python -m benchmarks.harness setup jaxmarl_smax
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu_options import Measure, Options, contestant, unbuilt
from benchmarks.gpu_runs import SECONDS, timed_run, watch_run
from benchmarks.harness import Bar, Contestant, Medians

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario

RATE, STEPS = "environment steps per second", "env_steps"
BUDGET = 2_000_000
"""Environment steps of SMAX and Overcooked."""


def jaxmarl(preset: str, options: Options) -> Mapping[str, float]:
    """Environment steps a second of a preset's run."""
    from ludus.runs.scenario_files import load_scenario

    def scenario(steps: int) -> Scenario:
        changes = [f"runtime.device={options.device}", f"response={{steps: {steps}}}", "evaluation.episodes=2"]
        return load_scenario(preset, changes, options.seed)

    budget = 4_000 if options.small else BUDGET // 10 if options.quick else BUDGET
    return _rate(scenario, warm_up=budget // 10, budget=budget)


def _rate(scenario: Callable[[int], Scenario], *, warm_up: int, budget: int) -> Mapping[str, float]:
    """Of the second of two runs. scenario: of so many steps."""
    with tempfile.TemporaryDirectory() as folder:
        for name, steps in ("warm-up", warm_up), ("run", budget):
            watch = watch_run()
            seconds, _ = timed_run(scenario(steps), Path(folder) / name, observer=watch)
    return {RATE: watch.counters[STEPS] / seconds, SECONDS: seconds}


KINDS: Mapping[str, Measure] = {
    "smax": partial(jaxmarl, "smax-3m"),
    "overcooked": partial(jaxmarl, "overcooked"),
}
SMAX, OVERCOOKED = "SMAX 3m", "Overcooked, cramped room"
SMAX_PEER, OVERCOOKED_PEER = f"{SMAX}, JaxMARL", f"{OVERCOOKED}, JaxMARL"
SHOWN = ((SMAX, RATE), (OVERCOOKED, RATE))
"""Figures that the page has in rows of their own."""


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (
        contestant(SMAX, "smax", device),
        contestant(OVERCOOKED, "overcooked", device),
        _jaxmarl(SMAX_PEER, "run", ("--map", "3m"), device, least=16_384),
        _jaxmarl(OVERCOOKED_PEER, "overcooked", ("--layout", "cramped_room"), device, least=2_048),
    )


def _jaxmarl(name: str, module: str, game: tuple[str, ...], device: str, *, least: int) -> Contestant:
    """least: steps of one update."""
    return Contestant(
        name,
        f"benchmarks.peers.jaxmarl_smax.{module}",
        (*game, "--device", device, "--steps", str(BUDGET)),
        "jaxmarl_smax",
        seeds=(0, 1, 2),
        quick_arguments=("--steps", str(least if device == "cpu" else BUDGET // 10)),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def times(ours: str, theirs: str) -> Callable[[Medians], float]:
        return lambda m: m(ours, RATE) * m(theirs, SECONDS) / m(theirs, STEPS)

    return (
        *(
            Bar(f"{ours}, times JaxMARL's own program", ">= 1", times(ours, theirs), unit="x", quick=gpu)
            for ours, theirs in ((SMAX, SMAX_PEER), (OVERCOOKED, OVERCOOKED_PEER))
        ),
        unbuilt(
            "Pgx's connect four by PPO in self-play, times a program in the manner of PureJaxRL",
            ">= 1",
            "benchmarks/peers has no such program",
            unit="x",
        ),
    )
