"""What a card does: whole games of Leduc poker, played there; exact NashConv of 1,000 profiles, beside one core's compiled sweeps.

    python -m benchmarks.gpu [--quick] [--device cuda:1]
    python -m benchmarks.gpu --device cpu        the same code, small, on the CPU: to see that it runs; bars stay unjudged

Without a card nothing is measured, and every bar is unjudged.

`play` has uniform policies for tables; a step is a decision of a player (chance is not counted), and the count is read back once per
order, which is what the clock waits for. `NashConv` begins with tables in the memory of the device that computes, realises them as plans,
and ends with 1,000 numbers in host memory; both roads must agree. Figures are medians over the orders of a process.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from benchmarks.harness import Bar, Benchmark, Contestant, Medians, ratio
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "torch", "open-spiel")
KINDS = ("play", "nash_conv", "compiled")
STEPS, SECONDS = "steps per second", "seconds per 1,000 profiles"
GAMES, PROFILES = 1 << 22, 1000
SMALL = ("--games", "20000", "--profiles", "20", "--orders", "2")


def benchmark(device: str) -> Benchmark:
    """On this device. Its bars are a card's."""
    card = device != "cpu"

    def contestant(name: str, kind: str) -> Contestant:
        quick = ("--orders", "3") if card else SMALL
        arguments = ("--worker", kind, "--device", device)
        return Contestant(name, "benchmarks.gpu", arguments, seeds=(0, 1, 2), quick_arguments=quick)

    return Benchmark(
        name="gpu",
        contestants=(
            contestant("Leduc, random play", "play"),
            contestant("Leduc, NashConv", "nash_conv"),
            contestant("Leduc, NashConv, one core", "compiled"),
        ),
        bars=(
            Bar("Leduc, random play", ">= 1e9", lambda m: m("Leduc, random play", STEPS), unit="/s", quick=card),
            Bar("Leduc, random play, aim", ">= 5e9", lambda m: m("Leduc, random play", STEPS), unit="/s", quick=card),
            Bar(
                "NashConv of 1,000 Leduc profiles, times one core",
                ">= 20",
                ratio(slow="Leduc, NashConv, one core", fast="Leduc, NashConv", figure=SECONDS),
                unit="x",
                quick=card,
            ),
        ),
    )


def _play(device: str, games: int, seed: int) -> Callable[[], float]:
    """A function that plays so many games and returns how many decisions that were."""
    import torch

    from ludus.core.device import fetched, to_device
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.tensors import TreeTensors

    tree = compile_tree("leduc_poker")
    tensors = TreeTensors(tree, device)
    generator = torch.Generator(tensors.device).manual_seed(seed)
    uniform = [to_device(tree.uniform(p)[None], tensors.device) for p in range(2)]

    def play() -> float:
        return fetched([tensors.play(uniform, games, generator=generator).decisions.sum()])[0]

    return play


def _nash_conv(device: str, profiles: int, seed: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """NashConv float64[profiles] of random tables, by the tensors on the device and by the compiled sweeps."""
    from ludus.core.device import to_device, to_host
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.tensors import TreeTensors

    tree = compile_tree("leduc_poker")
    tensors, rng = TreeTensors(tree, device), np.random.default_rng(seed)
    weights = [tree.uniform(p) * rng.exponential(size=(profiles, *tree.uniform(p).shape)) for p in range(2)]
    tables = [weight / weight.sum(axis=2, keepdims=True) for weight in weights]
    placed = [to_device(many, tensors.device) for many in tables]

    def there() -> object:
        gain, _ = tensors.exploitability([tensors.realisation(p, many) for p, many in enumerate(placed)])
        return to_host(gain.sum(1))

    def compiled() -> object:
        plans = [[tree.realisation(p, table) for table in many] for p, many in enumerate(tables)]
        return np.array([tree.exploitability(profile).nash_conv for profile in zip(*plans, strict=True)])

    return there, compiled


def work(argv: Sequence[str]) -> int:
    """A worker: prints the figures of one kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--games", type=int, default=GAMES)
    parser.add_argument("--profiles", type=int, default=PROFILES)
    parser.add_argument("--orders", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    plays = args.worker == "play"
    if plays:
        run: Callable[[], object] = _play(args.device, args.games, args.seed)
        run()  # loads kernels, and takes memory
    else:
        there, compiled = _nash_conv("cpu" if args.worker == "compiled" else args.device, args.profiles, args.seed)
        np.testing.assert_allclose(there(), compiled(), rtol=0, atol=1e-9)
        run = compiled if args.worker == "compiled" else there
    lines = Lines(PACKAGES)
    found = []
    for _ in range(args.orders):
        begun = time.perf_counter()
        steps = run()
        seconds = time.perf_counter() - begun
        found.append(float(steps) / seconds if plays else seconds * PROFILES / args.profiles)  # type: ignore[arg-type]
    lines.figures({STEPS if plays else SECONDS: median(found)})
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    from ludus.core.device import cards, require_card

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", add_help=False)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu")
    args, rest = parser.parse_known_args(argv)
    measured = benchmark(args.device)
    if args.device == "cpu":
        print("on the CPU, small: this shows that the code runs, and says nothing of a card")
        return measured.main([*rest, "--quick"])
    if args.device.startswith("cuda") and not cards():
        print("there is no card: nothing is measured")
        for bar in measured.bars:
            print(bar.judge(Medians({})).line())
        return 0
    return benchmark(require_card(args.device)).main(rest)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]) if "--worker" in sys.argv else main())
