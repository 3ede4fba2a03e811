"""Whole games where they are learned from: Leduc poker played, and learned by mirror descent and by PPO, without a row in host memory.

One learner in self-play plays all seats. A decision counts once it was learned from; the clock runs through playing and learning, and what
is read back of each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant

if TYPE_CHECKING:
    from ludus.core.types import PolicyRef
    from ludus.policies.base import Policy

DECISIONS = "decisions per second"


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


KINDS: Mapping[str, Measure] = {"resident_mmd": mmd, "resident_ppo": ppo}
MMD_THERE, PPO_THERE = "Leduc, mirror descent, learning included", "Leduc, PPO, learning included"


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (contestant(MMD_THERE, "resident_mmd", device), contestant(PPO_THERE, "resident_ppo", device))


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""
    return (
        Bar(MMD_THERE, ">= 2e7", lambda m: m(MMD_THERE, DECISIONS), unit="/s", quick=gpu),
        Bar(PPO_THERE, ">= 2e7", lambda m: m(PPO_THERE, DECISIONS), unit="/s", quick=gpu),
    )
