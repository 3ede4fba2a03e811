"""Whole runs in environments that JAX compiles, beside programs that are compiled whole: environment steps a second, end to end.

`smax`, `overcooked`: presets, after a smaller run. JaxMARL's own MAPPO and IPPO, with its own settings, take as many steps, and compile
before their clock starts: python -m benchmarks.harness setup jaxmarl_smax

`connect_four`: Pgx's connect four by PPO in self-play, after a smaller run; `connect_four_jax`: the same in the manner of PureJaxRL
(`benchmarks.peers.pgx_self_play`, with the packages of Ludus), compiled before its clock starts. Networks, batches, epochs and minibatches
are the same, and then both play against random play. JAX must see the GPU: docs/environments/pgx.md
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu_options import Measure, Options, contestant
from benchmarks.gpu_runs import SECONDS, timed_run, watch_run
from benchmarks.harness import Bar, Contestant, Medians
from benchmarks.peers.training import Setting

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario

RATE, STEPS, WON = "environment steps per second", "env_steps", "won against random play"
BUDGET = 2_000_000
"""Environment steps of SMAX and Overcooked."""
FOUR = Setting(
    environments=4096, steps=32, minibatch=8192, epochs=4, hidden=(128, 128), activation="relu", learning_rate=1e-3, gamma=1.0, entropy=0.05
)  # fmt: skip
FOUR_SMALL = replace(FOUR, environments=64, minibatch=256)
ITERATIONS = 150
"""Of connect four: 19.7 M steps."""
GAMES = 1000


def jaxmarl(preset: str, options: Options) -> Mapping[str, float]:
    """Environment steps a second of a preset's run."""
    from ludus.runs.scenario_files import load_scenario

    def scenario(steps: int) -> Scenario:
        changes = [f"runtime.device={options.device}", f"response={{steps: {steps}}}", "evaluation.episodes=2"]
        return load_scenario(preset, changes, options.seed)

    budget = 4_000 if options.small else BUDGET // 10 if options.quick else BUDGET
    with tempfile.TemporaryDirectory() as folder:
        return _rate(scenario, Path(folder), warm_up=budget // 10, budget=budget)


def connect_four(options: Options) -> Mapping[str, float]:
    """Environment steps a second of a run, and the share of games that its policy wins."""
    from ludus.evaluation.evaluate import evaluate_run

    setting, iterations = _four(options)
    ours, others = "@0/0-1", "random"
    with tempfile.TemporaryDirectory() as folder:
        scenario = partial(self_play, setting, options)
        rate = _rate(scenario, Path(folder), warm_up=3 * setting.batch, budget=iterations * setting.batch)
        report = evaluate_run(Path(folder) / "run", episodes=GAMES, policies=[ours, others])
    wins = {match.policies: match.wins for match in report.matches}
    return {**rate, WON: (wins[ours, others][0][0] + wins[others, ours][1][0]) / (2 * GAMES)}


def self_play(setting: Setting, options: Options, steps: int) -> Scenario:
    """One policy that plays both seats of connect four for so many steps, on the device."""
    from benchmarks.training_speed_run import ppo
    from ludus.runs.scenario_files import load_scenario

    changes = (
        *("scenario=self_play", "every_seat=true", "share=always", "generations=1", "evaluation.episodes=2"),
        *("runtime.environments=device", f"runtime.device={options.device}", f"env.num_envs={setting.environments}"),
        f"response={{decisions: {steps}}}",
    )
    return load_scenario("pgx/connect_four", changes, options.seed, algorithm=ppo(setting))


def connect_four_jax(options: Options) -> Mapping[str, float]:
    """The same of a program that JAX compiles whole."""
    import jax

    from benchmarks.peers.jax_device import use_device
    from benchmarks.peers.pgx_self_play import make_train, shares_won

    use_device(options.device)
    setting, iterations = _four(options)
    key = jax.random.PRNGKey(options.seed)
    train = jax.jit(make_train(setting, iterations=iterations)).lower(key).compile()
    begun = time.perf_counter()
    params = jax.block_until_ready(train(key))
    seconds = time.perf_counter() - begun
    won = shares_won(setting, params, jax.random.fold_in(key, 1), games=2 * GAMES)
    return {RATE: iterations * setting.batch / seconds, SECONDS: seconds, WON: sum(won) / 2}


def _four(options: Options) -> tuple[Setting, int]:
    if options.small:
        return FOUR_SMALL, 10
    return FOUR, ITERATIONS // 10 if options.quick else ITERATIONS


def _rate(scenario: Callable[[int], Scenario], folder: Path, *, warm_up: int, budget: int) -> Mapping[str, float]:
    """Of the second of two runs. scenario: of so many steps."""
    for name, steps in ("warm-up", warm_up), ("run", budget):
        watch = watch_run()
        seconds, _ = timed_run(scenario(steps), folder / name, observer=watch)
    return {RATE: watch.counters[STEPS] / seconds, SECONDS: seconds}


KINDS: Mapping[str, Measure] = {
    "smax": partial(jaxmarl, "smax-3m"),
    "overcooked": partial(jaxmarl, "overcooked"),
    "connect_four": connect_four,
    "connect_four_jax": connect_four_jax,
}
SMAX, OVERCOOKED = "SMAX 3m", "Overcooked, cramped room"
SMAX_PEER, OVERCOOKED_PEER = f"{SMAX}, JaxMARL", f"{OVERCOOKED}, JaxMARL"
CONNECT_FOUR, CONNECT_FOUR_PEER = "Pgx's connect four", "Pgx's connect four, as PureJaxRL"
SHOWN = ((SMAX, RATE), (OVERCOOKED, RATE), (CONNECT_FOUR, RATE), (CONNECT_FOUR, WON), (CONNECT_FOUR_PEER, WON))
"""Figures that the page has in rows of their own."""


def contestants(device: str) -> tuple[Contestant, ...]:
    """On this device."""
    return (
        contestant(SMAX, "smax", device),
        contestant(OVERCOOKED, "overcooked", device),
        _jaxmarl(SMAX_PEER, "run", ("--map", "3m"), device, least=16_384),
        _jaxmarl(OVERCOOKED_PEER, "overcooked", ("--layout", "cramped_room"), device, least=2_048),
        contestant(CONNECT_FOUR, "connect_four", device),
        contestant(CONNECT_FOUR_PEER, "connect_four_jax", device),
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
        Bar(
            f"{CONNECT_FOUR} by PPO in self-play, times a program in the manner of PureJaxRL",
            ">= 1",
            lambda m: m(CONNECT_FOUR, RATE) / m(CONNECT_FOUR_PEER, RATE),
            unit="x",
            quick=gpu,
        ),
    )
