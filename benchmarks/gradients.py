"""Gradients of stale weights, applied as they come, against gradients that ranks add up: which learns faster?

    python -m benchmarks.gradients [--quick] [--seeds N] [--workers K …]

Advantage actor-critic on CartPole with k workers, each of which plays with its copy of the weights and takes gradients of its own rows.

    summed      the k gradients of one set of weights are added up, and all copies take the same step: ranks. To rounding it is one
                learner with the joined batch of 512 rows, and that is what is run here
    stale       a parameter server takes each gradient of 512 / k rows as it comes, whichever weights it was computed with, and hands the
                newest ones back (Hogwild's and A3C's way); the rate is the summed one's, over √k, or over k
    small       as stale, without staleness: one worker after the other, with the rate over √k

Time is simulated, so that neither the number of cores nor their load matters: a round of rows and gradient takes a time of mean 1 whose
logarithm is normal with standard deviation `noise`, and with `straggler` one worker takes ten times as long. Summed rounds last as long as
their slowest rank, and 0.05 more for the sum; a push and a pull take 0.05 too. A score is the mean return of 100 episodes of the final
weights (500 is the most), at equal samples and, for stale gradients, also when the summed ones' time is over.
"""

from __future__ import annotations

import argparse
import heapq
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestants import Repetition
from benchmarks.gradients_tasks import CARTPOLE, ActorCritic, Play, sample
from benchmarks.machine import ROOT
from benchmarks.results import result_path, write
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.core.machine import thread_limits
from ludus.core.seeding import generator
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample

ROWS, ROUNDS, RATE, LATENCY = 512, 80, 2e-3, 0.05
NOISES = {"noise 0": 0.0, "noise 0.3": 0.3, "noise 1": 1.0, "straggler": 0.3}
LEARNED = ("noise 0.3", "noise 1")  # with these it is also measured what is learned in the time of the summed ones

Flat = NDArray[np.float32]


class Copy(OnPolicyLearner):
    """A worker's copy of the weights, or the server's."""

    def pull(self, weights: Flat) -> None:
        self.model.parameters.flat[:] = weights

    def held(self) -> Flat:
        return self.model.parameters.flat.copy()

    def gradient(self, batch: Sample) -> Flat:
        with self.model.learning(self._batch(batch.columns), 0) as rows:
            self.model.gradient(*self.model.prepare(rows, None), 0.0)
        return self.model.parameters.gradient.copy()

    def push(self, gradient: Flat, rate: float) -> None:
        self.model.parameters.gradient[:] = gradient
        self.model.move(rate)


class Worker:
    """Plays 512 / `parts` rows at a time with its copy."""

    def __init__(self, *, parts: int, seed: int) -> None:
        algorithm = ActorCritic(
            batch=ROWS // parts,
            batch_unit="decisions",
            learning_rate=Schedule(start=RATE),
            gamma=0.98,
            gae_lambda=0.95,
        )
        self.play = Play(CARTPOLE, algorithm, num_envs=max(2, 16 // parts), amount=ROWS // parts, seed=seed)
        context = LearnerContext(self.play.spec, (0,), seed % 1000)
        self.copy = Copy(algorithm, algorithm.model(context), context)
        self.returns: list[float] = []
        self._version = 0

    def gradient(self) -> Flat:
        """Of new rows, by its copy's weights."""
        self._version += 1  # policies are known by their versions
        rollout = self.play.rollout(build_policy(self.copy.spec, self.copy.weights()), self._version)
        self.returns += rollout.episodes.returns[:, 0].tolist()
        assert rollout.trajectories is not None
        return self.copy.gradient(sample(self.copy, rollout.trajectories))


def _figures(server: Worker, workers: Sequence[Worker], **more: float) -> dict[str, float]:
    returns = [r for worker in workers for r in worker.returns]
    return {"score": server.play.score(server.copy), "training return": statistics.mean(returns), **more}


def in_turn(*, seed: int, rounds: int, parts: int, rate: float) -> dict[str, float]:
    """One set of weights, `parts` gradients of 512 / parts rows one after the other in each round. parts = 1: what ranks do."""
    worker = Worker(parts=parts, seed=seed)
    for _ in range(rounds * parts):
        worker.copy.push(worker.gradient(), rate)
    return _figures(worker, [worker])


def summed_time(*, seed: int, rounds: int, parts: int, noise: str) -> float:
    """What so many rounds of ranks take."""
    durations = _durations(seed, parts, noise)
    return sum(max(durations(k) for k in range(parts)) + LATENCY for _ in range(rounds))


def _durations(seed: int, parts: int, noise: str) -> Callable[[int], float]:
    rng, spread = generator(seed, "durations"), NOISES[noise]
    slow = [10.0 if noise == "straggler" and k == 0 else 1.0 for k in range(parts)]
    return lambda k: slow[k] * math.exp(spread * rng.standard_normal() - spread**2 / 2)


def stale(
    *, seed: int, rounds: int, parts: int, rate: float, noise: str, until: float | None = None
) -> dict[str, float]:
    """`parts` workers beside each other for as many samples as `rounds` have, or until a time."""
    server = Worker(parts=1, seed=seed)
    workers = [Worker(parts=parts, seed=1000 * (k + 1) + seed) for k in range(parts)]
    durations = _durations(seed, parts, noise)
    events: list[tuple[float, int]] = []
    pulled, version, lags = [0] * parts, 0, []
    for k in range(parts):
        workers[k].copy.pull(server.copy.held())
        heapq.heappush(events, (durations(k), k))
    now = 0.0
    while version < rounds * parts if until is None else events[0][0] < until:
        now, k = heapq.heappop(events)
        server.copy.push(
            workers[k].gradient(), rate
        )  # of the weights that it pulled; played only now, which is the same
        lags.append(version - pulled[k])
        version += 1
        workers[k].copy.pull(server.copy.held())
        pulled[k] = version
        heapq.heappush(events, (now + LATENCY + durations(k), k))
    return _figures(server, workers, time=now, lag=statistics.mean(lags), rounds=version / parts)


def contest(parts: int, *, seed: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every contestant once."""
    rates = {"rate": RATE, "rate / √k": RATE / math.sqrt(parts), "rate / k": RATE / parts}
    out = {"summed": {**in_turn(seed=seed, rounds=rounds, parts=1, rate=RATE), "rounds": float(rounds)}}
    for name, rate in rates.items():
        if name == "rate / √k":
            out[f"small, {name}"] = in_turn(seed=seed, rounds=rounds, parts=parts, rate=rate)
        out[f"stale, {name}"] = stale(seed=seed, rounds=rounds, parts=parts, rate=rate, noise="noise 0.3")
    for noise in NOISES:
        time = summed_time(seed=seed, rounds=rounds, parts=parts, noise=noise)
        out["summed"][f"time, {noise}"] = time
        if noise in LEARNED:
            found = stale(seed=seed, rounds=rounds, parts=parts, rate=rates["rate / √k"], noise=noise, until=time)
            out[f"stale, rate / √k, {noise}, in the time of summed"] = found
    return out


def _print(parts: int, measured: Mapping[str, Sequence[Repetition]]) -> None:
    print(f"\n{parts} workers\n\n| gradients | score | training return | lag | rounds | time |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, many in measured.items():
        cells = [name.removeprefix(f"{parts} workers, ")]
        for figure in ("score", "training return", "lag", "rounds", "time"):
            values = [r.figures[figure] for r in many if figure in r.figures]
            error = f" ± {statistics.stdev(values) / math.sqrt(len(values)):.3g}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3g}{error}" if values else "")
        print("| " + " | ".join(cells) + " |", flush=True)
    summed = measured[f"{parts} workers, summed"]
    for noise in NOISES:
        times = [r.figures[f"time, {noise}"] / r.figures["rounds"] for r in summed]
        print(f"time of a summed round with {noise}: {statistics.mean(times):.3g} of a worker's mean round", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each number of workers, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradients")
    parser.add_argument("--quick", action="store_true", help="an eighth of the training, two seeds")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[4])
    args = parser.parse_args(argv)
    measured: dict[str, list[Repetition]] = {}
    with thread_limits(torch_threads=1):
        for parts in args.workers:
            for seed in range(2 if args.quick else args.seeds):
                for name, figures in contest(parts, seed=seed, rounds=ROUNDS // (8 if args.quick else 1)).items():
                    measured.setdefault(f"{parts} workers, {name}", []).append(Repetition(seed, figures))
            _print(parts, {k: v for k, v in measured.items() if k.startswith(f"{parts} workers")})
    path = result_path("gradients", part=args.quick, folder=ROOT / "benchmarks" / "results")
    write(path, name="gradients", quick=args.quick, measured=measured, carried={}, outcomes=())
    return 0


if __name__ == "__main__":
    sys.exit(main())
