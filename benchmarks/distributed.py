"""What several processes cost and bring: overhead of one worker, scaling, stragglers, and PSRO's three levels of parallelism.

    python -m benchmarks.distributed [--quick]

overhead: whole runs of `ludus train` with one worker, on Ray and on processes, against the same runs in one process,
which are equal to the bit: CartPole with PPO and 64 environments, and connect four (OpenSpiel's general path) against the newest policy.
Environment steps per second of whole generations: playing, learning, evaluation and checkpoints. `1 task`: the players' responses one after
the other, as in one process; otherwise one learns while another plays.

scaling: environments whose step *waits* for 10 milliseconds instead of computing, so that the cores are not the limit; 8 of them for each
worker, a network of 64x64, a batch of at least 100 steps of every worker. Decisions learned from per second, in the middle of a training
task. Efficiency of n workers is their rate over n times the rate of one.

straggler: the same, where the steps of one worker take 10 times as long. What the arithmetic says, for W workers: sync waits for the
slowest, so an iteration takes 10 times as long and 90% are lost; async goes on without it, so at most 0.9 / W are lost, 5.6% of 16.

computing: connect four in 2 shards, carried by one worker and by two, on as many cores as there are.

psro: a game of two players whose steps wait, payoffs by play, 64 environments in 8 shards. Generations per minute; `populations` stands for
the weights of all policies, and is equal for any number of workers.

Start-up (Ray, processes, imports) is reported apart and counts in one bar of its own. Nothing is pinned: this is about processes. `--quick`
takes a minute and a half and leaves PSRO as committed; the whole takes more than half an hour, much of it for starting Rays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

_MODULE = "benchmarks.distributed_worker"
_SEEDS = (0, 1, 2)
WORKERS = (1, 2, 4, 8, 16)
START = "seconds to start"
STEPS, DECISIONS, GENERATIONS = "env steps per second", "decisions per second", "generations per minute"
CASES = {"cartpole": "CartPole", "connect_four": "connect four"}


def _contestant(name: str, *arguments: str, quick: bool = True, seeds: tuple[int, ...] = _SEEDS) -> Contestant:
    """quick: whether `--quick` measures it; otherwise it uses what is committed."""
    return Contestant(
        name=name,
        module=_MODULE,
        arguments=arguments,
        quick_arguments=("--quick",),
        seeds=seeds,
        quick_seeds=_SEEDS[:1] if quick else (),
        pinned=False,
    )


def _overhead(case: str) -> tuple[Contestant, ...]:
    own, quick = ("overhead", "--case", case), case == "cartpole"
    return (
        _contestant(f"{case}, in one process", *own, "--kind", "inprocess", "--tasks", "1", quick=quick),
        _contestant(f"{case}, on Ray", *own, quick=quick),
        _contestant(f"{case}, on processes", *own, "--kind", "processes", quick=quick),
        _contestant(f"{case}, on Ray, 1 task", *own, "--tasks", "1", quick=False),
    )


def _scaling(mode: str) -> tuple[Contestant, ...]:
    return tuple(
        _contestant(
            f"{mode} {n}", "scaling", "--mode", mode, "--workers", str(n), quick=mode == "async" and n in (1, 8)
        )
        for n in WORKERS
    )


def _straggling(mode: str) -> tuple[str, ...]:
    return ("scaling", "--mode", mode, "--workers", "16", "--straggler")


def _relative(figure: str, name: str, *, to: str, times: float = 1.0) -> Callable[[Medians], float]:
    return lambda medians: medians(name, figure) / (times * medians(to, figure))


def _started(medians: Medians) -> float:
    """What starting costs beyond the same run in one process."""
    here, processes, ray = (
        medians(f"cartpole, {where}", START) for where in ("in one process", "on processes", "on Ray")
    )
    return (processes - here) / (ray - here)


def _lost(mode: str) -> Callable[[Medians], float]:
    return lambda medians: 1 - medians(f"{mode} 16, straggler", DECISIONS) / medians(f"{mode} 16", DECISIONS)


def _populations(medians: Medians) -> float:
    """Different populations of one seed, over the numbers of workers."""
    found = [medians.values(f"psro {n}", "populations") for n in (1, 2, 8)]
    return float(max(len(set(of_seed)) for of_seed in zip(*found, strict=False)))


BENCHMARK = Benchmark(
    name="distributed",
    contestants=(
        *(contestant for case in CASES for contestant in _overhead(case)),
        *_scaling("sync"),
        *_scaling("async"),
        *(
            _contestant(f"{mode} 16, straggler", *_straggling(mode), quick=False, seeds=seeds)
            for mode, seeds in (("sync", (0,)), ("async", _SEEDS))
        ),
        *(_contestant(f"computing {n}", "computing", "--workers", str(n), quick=False) for n in (1, 2)),
        *(_contestant(f"psro {n}", "psro", "--workers", str(n), quick=False) for n in (1, 2, 8)),
    ),
    bars=(
        *(
            Bar(
                f"{words}, {kind} with one worker relative to one process",
                ">= 0.85",
                _relative(STEPS, f"{case}, on {kind}", to=f"{case}, in one process"),
            )
            for kind in ("Ray", "processes")
            for case, words in CASES.items()
        ),
        Bar("what starting costs on processes, relative to Ray", "<= 0.5", _started),
        *(
            Bar(
                f"waiting environments, efficiency of {n} workers, async",
                f">= {wanted}",
                _relative(DECISIONS, f"async {n}", to="async 1", times=n),
            )
            for n, wanted in ((8, 0.95), (16, 0.9))
        ),
        Bar("lost to a straggler of 16 workers, async", "<= 0.1", _lost("async"), quick=False),
        Bar("lost to a straggler of 16 workers, sync, 0.9 by arithmetic", "<= 0.91", _lost("sync"), quick=False),
        Bar(
            "PSRO, 8 workers, times the generations of 1",
            ">= 6",
            _relative(GENERATIONS, "psro 8", to="psro 1"),
            unit="×",
        ),
        Bar("PSRO, different populations over 1, 2 and 8 workers", "<= 1", _populations, quick=False),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
