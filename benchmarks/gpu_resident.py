"""Whole games where they are learned from: Leduc poker played, and learned by mirror descent and by PPO, without a row in host memory; and
the preset `leduc` there, beside the same preset on one core.

`learns` is one learner in self-play that plays all seats. A decision counts once it was learned from; the clock runs through playing and
learning, and what is read back of each round. `preset` is a whole run as a user's, database and policy files included, but for the report,
on a clock that starts after a smaller run. Its updates there are fewer and larger (`THERE`): a GPU's step costs the same for some hundred
decisions as for some ten thousand.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, Medians

if TYPE_CHECKING:
    from ludus.core.types import PolicyRef
    from ludus.policies.base import Policy

DECISIONS, SECONDS, NASH_CONV = "decisions per second", "seconds", "nash_conv"
THERE = ("algorithm.batch=1500", "algorithm.epochs=10")
"""Settings of the preset on a GPU."""


def mmd(options: Options) -> Mapping[str, float]:
    """Decisions a second that mirror descent has learned from."""
    from ludus.algorithms.mmd.config import MMD

    return _learns(MMD(batch=_batch(options), batch_unit="decisions", epochs=1, minibatches=4), options)


def ppo(options: Options) -> Mapping[str, float]:
    """The same of PPO."""
    from ludus.algorithms.ppo.config import PPO

    return _learns(PPO(batch=_batch(options), batch_unit="decisions", epochs=1, minibatches=4), options)


def _batch(options: Options) -> int:
    return 1 << (12 if options.small else 20)


def _learns(algorithm: object, options: Options) -> Mapping[str, float]:
    from ludus.algorithms.common.base import Algorithm
    from ludus.core.types import DeviceChoice, Mixture, TrainingTask
    from ludus.envs.registry import make_env
    from ludus.replay.episode_server import EpisodeServer
    from ludus.rollout.host import LocalRollouts
    from ludus.training.ondevice_collector import DeviceVectors
    from ludus.training.stopping import parse_stopper
    from ludus.training.training import Training, TrainingParts

    assert isinstance(algorithm, Algorithm)
    env = make_env("openspiel/leduc_poker", num_envs=1)
    parts = TrainingParts(
        LocalRollouts.around(env),
        EpisodeServer(options.seed),
        _nobody,
        options.seed,
        device=DeviceChoice(options.device, written=False),
        vectors=DeviceVectors("device", env, algorithm.collect().amount // 4),
    )
    task = TrainingTask("leduc", 1, 0, (0, 1), "0-1", Mixture(()), together=1.0)
    stop = parse_stopper({"decisions": 1 << 40})
    training = Training(task, algorithm=algorithm, parts=parts, stop=stop, start=None)
    before = 0

    def round_() -> None:  # which ends by reading how it went
        nonlocal before
        before = training.progress.samples
        training.step()

    seconds = median_seconds(round_, orders=3 if options.small else 5 if options.quick else 25)
    return {DECISIONS: (training.progress.samples - before) / seconds}


def _nobody(ref: PolicyRef) -> Policy:
    raise AssertionError(ref)


def preset(options: Options) -> Mapping[str, float]:
    """Seconds of the preset there, and what it comes to."""
    return _preset(options, "runtime.environments=device", f"runtime.device={options.device}", *THERE)


def preset_here(options: Options) -> Mapping[str, float]:
    """On one core, as it stands."""
    return _preset(options, "runtime.device=cpu")


def _preset(options: Options, *settings: str) -> Mapping[str, float]:
    from ludus.runs.runner import run
    from ludus.runs.scenario_files import load_scenario

    tiny = ["generations=1", "response={episodes: 3000}"]
    with tempfile.TemporaryDirectory() as folder:
        warm_up = load_scenario("leduc", [*settings, *tiny], options.seed)
        run(warm_up, run_dir=Path(folder) / "warm-up", report=False)
        scenario = load_scenario("leduc", [*settings, *(tiny if options.small else [])], options.seed)
        begun = time.perf_counter()
        result = run(scenario, run_dir=Path(folder) / "run", report=False)
        return {SECONDS: time.perf_counter() - begun, NASH_CONV: result.nash_conv[-1]}


KINDS: Mapping[str, Measure] = {
    "resident_mmd": mmd,
    "resident_ppo": ppo,
    "resident_preset": preset,
    "preset_here": preset_here,
}
SEEDS = (4, 5, 6, 7, 8)  # none that THERE was chosen by
MMD_THERE, PPO_THERE = "Leduc, mirror descent, learning included", "Leduc, PPO, learning included"
PRESET, PRESET_HERE = "preset leduc, played there", "preset leduc, one core"


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (
        contestant(MMD_THERE, "resident_mmd", device),
        contestant(PPO_THERE, "resident_ppo", device),
        contestant(PRESET, "resident_preset", device, seeds=SEEDS),
        contestant(PRESET_HERE, "preset_here", device, seeds=SEEDS),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""

    def apart(m: Medians) -> float:
        return m(PRESET, NASH_CONV) / m(PRESET_HERE, NASH_CONV)

    return (
        Bar(MMD_THERE, ">= 2e7", lambda m: m(MMD_THERE, DECISIONS), unit="/s", quick=gpu),
        Bar(PPO_THERE, ">= 2e7", lambda m: m(PPO_THERE, DECISIONS), unit="/s", quick=gpu),
        Bar(PRESET, "<= 8", lambda m: m(PRESET, SECONDS), unit="s", quick=gpu),
        Bar(f"{PRESET}: NashConv, times one core's", "<= 1.1", apart, unit="x", quick=gpu),
    )
