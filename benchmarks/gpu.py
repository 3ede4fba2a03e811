"""What a GPU does, beside the bare limit or a peer in the same run; each part says what it measures.

    python -m benchmarks.gpu [--quick] [--device cuda:1] [--only NAME …]
    python -m benchmarks.gpu --device cpu        the same code, small, on the CPU: to see that it runs; bars stay unjudged

Without a GPU nothing is measured, and every bar is unjudged. Figures are medians over the orders of a process, and over processes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from benchmarks import gpu_acting, gpu_auto, gpu_learning, gpu_resident, gpu_trees, gpu_vmas
from benchmarks.gpu_options import Measure, Options, Part
from benchmarks.harness import Benchmark, Medians
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel")
PARTS = cast(Sequence[Part], (gpu_trees, gpu_resident, gpu_learning, gpu_acting, gpu_auto, gpu_vmas))
KINDS: dict[str, Measure] = {kind: measure for part in PARTS for kind, measure in part.KINDS.items()}


def benchmark(device: str) -> Benchmark:
    """On this device. Its bars are a GPU's."""
    return Benchmark(
        name="gpu",
        contestants=tuple(each for part in PARTS for each in part.contestants(device)),
        bars=tuple(bar for part in PARTS for bar in part.bars(gpu=device != "cpu")),
    )


def work(argv: Sequence[str]) -> int:
    """A worker: prints the figures of one kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(PACKAGES)
    lines.figures(KINDS[args.worker](Options(args.device, args.seed, args.quick)))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    from ludus.backend.device import gpu_count, require_gpu

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", add_help=False)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu")
    args, rest = parser.parse_known_args(argv)
    measured = benchmark(args.device)
    if args.device == "cpu":
        print("on the CPU, small: this shows that the code runs, and says nothing of a GPU")
        return measured.main([*rest, "--quick"])
    if args.device.startswith("cuda") and not gpu_count():
        print("there is no GPU: nothing is measured")
        for bar in measured.bars:
            print(bar.judge(Medians({})).line())
        return 0
    return benchmark(require_gpu(args.device)).main(rest)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]) if "--worker" in sys.argv else main())
