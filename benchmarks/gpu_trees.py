"""Game trees on a GPU: whole games of Leduc poker, and exact NashConv of 1,000 profiles beside one core's compiled sweeps.

`play` has uniform policies for tables, and one compiled kernel for a step of all games; a step is a decision of a player (chance is not
counted), and the count is read back once per order, which is what the clock waits for. `NashConv` begins with tables in the memory of the
device that computes, realises them as plans, and ends with 1,000 numbers in host memory; both backends must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.gpu_options import Measure, Options, contestant, median_seconds
from benchmarks.harness import Bar, Contestant, ratio
from ludus.core.errors import RunError

STEPS, SECONDS = "steps per second", "seconds per 1,000 profiles"


def play(options: Options) -> Mapping[str, float]:
    """Decisions a second of games that are played there."""
    from ludus.backend.device import scalars_to_host, to_device
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.stepping import TreeGames

    tree = compile_tree("leduc_poker")
    games = TreeGames(tree, options.device, fused=not options.small)  # a compiler takes longer than the rest
    uniform = [to_device(tree.uniform(p)[None], games.device) for p in range(2)]
    count, steps, seed = 20_000 if options.small else 1 << 22, 0.0, options.seed

    def some() -> None:
        nonlocal steps, seed
        seed += 1
        steps = scalars_to_host([games.play(uniform, count, seed=seed).decisions.sum()])[0]

    seconds = median_seconds(some, orders=_orders(options))
    if games.unfused:
        raise RunError(f"a step was not compiled to one kernel: {games.unfused}")
    return {STEPS: steps / seconds}


def nash_conv(options: Options) -> Mapping[str, float]:
    """By the tensors on the device."""
    there, compiled, profiles = _nash_conv(options)
    np.testing.assert_allclose(there(), compiled(), rtol=0, atol=1e-9)
    return {SECONDS: median_seconds(there, orders=_orders(options)) * 1000 / profiles}


def compiled(options: Options) -> Mapping[str, float]:
    """By one core's sweeps."""
    _, sweeps, profiles = _nash_conv(Options("cpu", options.seed, options.quick), small=options.small)
    return {SECONDS: median_seconds(sweeps, orders=_orders(options)) * 1000 / profiles}


def _orders(options: Options) -> int:
    return 2 if options.small else 3 if options.quick else 9


def _nash_conv(
    options: Options, *, small: bool | None = None
) -> tuple[Callable[[], object], Callable[[], object], int]:
    """NashConv float64[profiles] of random tables, by the tensors on the device and by the compiled sweeps; and how many."""
    from ludus.backend.device import to_device, to_numpy
    from ludus.envs.tree.game_tree import compile_tree
    from ludus.envs.tree.tensors import TreeTensors

    profiles = 20 if (options.small if small is None else small) else 1000
    tree = compile_tree("leduc_poker")
    tensors, rng = TreeTensors(tree, options.device), np.random.default_rng(options.seed)
    weights = [tree.uniform(p) * rng.exponential(size=(profiles, *tree.uniform(p).shape)) for p in range(2)]
    tables = [weight / weight.sum(axis=2, keepdims=True) for weight in weights]
    placed = [to_device(many, tensors.device) for many in tables]

    def there() -> object:
        gain, _ = tensors.exploitability([tensors.realization(p, many) for p, many in enumerate(placed)])
        return to_numpy(gain.sum(1))

    def sweeps() -> object:
        plans = [[tree.realization(p, table) for table in many] for p, many in enumerate(tables)]
        return np.array([tree.exploitability(profile).nash_conv for profile in zip(*plans, strict=True)])

    return there, sweeps, profiles


KINDS: Mapping[str, Measure] = {"play": play, "nash_conv": nash_conv, "compiled": compiled}


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (
        contestant("Leduc, random play", "play", device),
        contestant("Leduc, NashConv", "nash_conv", device),
        contestant("Leduc, NashConv, one core", "compiled", device),
    )


def bars(*, gpu: bool) -> tuple[Bar, ...]:
    """They are a GPU's."""
    times = ratio(slow="Leduc, NashConv, one core", fast="Leduc, NashConv", figure=SECONDS)
    return (
        Bar("Leduc, random play", ">= 1e9", lambda m: m("Leduc, random play", STEPS), unit="/s", quick=gpu),
        Bar("Leduc, random play, aim", ">= 5e9", lambda m: m("Leduc, random play", STEPS), unit="/s", quick=gpu),
        Bar("NashConv of 1,000 Leduc profiles, times one core", ">= 20", times, unit="x", quick=gpu),
    )
