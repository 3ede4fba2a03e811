"""OpenSpiel's games as arrays: steps per second of a core in random play, beside OpenSpiel's states in the same vector and bare.

    python -m benchmarks.openspiel_arrays [--quick]
    python -m benchmarks.openspiel_arrays --lockstep [GAME …] [--moves 1000000]

A step is a move in one environment, of all players where they move at once. Every step writes observations (OpenSpiel's tensors) and masks;
actions are chosen uniformly among legal ones, outside of the clock. `arrays` and `states` step vectors (`env.fast=on`, `off`), `bare` is
a loop over one `pyspiel.State`: the mover's tensor, legal actions, the move, returns and a new state at an end. Figures are steps per
second of the processor, in the fastest of many short blocks: other work on the machine only slows them. `compile`: its seconds for a game's
kernel, without a cache.

`--lockstep` plays both side by side and compares all that is shown (`benchmarks.openspiel_arrays_lockstep`): a million moves of every form.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines
from ludus.core.arrays import kernel

PACKAGES = ("ludus", "numpy", "numba", "open-spiel")
_MODULE = "benchmarks.openspiel_arrays"
KINDS = ("arrays", "states", "bare", "compile")
TENSORS = ("observation", "information_state")
GAMES = (
    "phantom_ttt",
    "dark_hex(board_size=3)",
    "connect_four",
    "goofspiel(imp_info=True)",
    "liars_dice",
    "breakthrough",
    "hex",
    "oshi_zumo",
    "go(board_size=9)",
)
"""What is measured."""
FORMS = (
    "phantom_ttt",
    "phantom_ttt(obstype=reveal-numturns)",
    "phantom_ttt(gameversion=abrupt)",
    "phantom_ttt(gameversion=abrupt,obstype=reveal-numturns)",
    "dark_hex(board_size=3)",
    "dark_hex(board_size=4,obstype=reveal-numturns)",
    "dark_hex(board_size=3,gameversion=adh)",
    "dark_hex(num_rows=3,num_cols=5,gameversion=adh,obstype=reveal-numturns)",
    "dark_hex(board_size=8)",
    "connect_four",
    "connect_four(egocentric_obs_tensor=True)",
    "connect_four(rows=5,columns=9,x_in_row=3)",
    "goofspiel",
    "goofspiel(imp_info=True)",
    "goofspiel(imp_info=True,egocentric=True,num_cards=5,points_order=descending)",
    "goofspiel(num_cards=6,players=3,points_order=ascending,returns_type=point_difference)",
    "goofspiel(egocentric=True,imp_info=True,num_cards=7,num_turns=3,players=4,returns_type=total_points)",
    "liars_dice",
    "liars_dice(numdice=3)",
    "liars_dice(bidding_rule=reset-quantity,dice_sides=4,numdice=2)",
    "breakthrough",
    "breakthrough(columns=4,rows=5)",
    "hex(board_size=5)",
    "hex(num_rows=5,num_cols=3)",
    "oshi_zumo",
    "oshi_zumo(alesia=True,coins=12,horizon=9,min_bid=2)",
    "go(board_size=9)",
    "go(board_size=5,komi=0.5,max_game_length=60)",
    "go(board_size=3,komi=3.0)",
)
"""What is compared with OpenSpiel's states."""
_WANTED = 10_000_000
_SIZES = {"arrays": 2048, "states": 256}
_LARGE_ROWS = ("breakthrough", "go(board_size=9)", "goofspiel(imp_info=True)", "hex")
_SIZE_OF_LARGE_ROWS = 512  # the rows of all environments should stay in the cache


def figure(game: str, tensors: str) -> str:
    """Return the name of a figure."""
    return f"{game}, {tensors}: steps per core second"


def _bars() -> Iterator[Bar]:
    for game in GAMES[:4]:
        key = figure(game, "observation")
        yield Bar(game, f">= {_WANTED}", lambda medians, key=key: medians("arrays", key), unit="/s")
    for other, least, games in (("bare", 20, GAMES[:2]), ("states", 10, GAMES)):
        for game in games:
            key = figure(game, "observation")
            yield Bar(
                f"{game}, times {other}",
                f">= {least}",
                lambda medians, key=key, other=other: medians("arrays", key) / medians(other, key),
                unit="x",
            )


BENCHMARK = Benchmark(
    name="openspiel_arrays",
    contestants=tuple(
        Contestant(
            name=kind, module=_MODULE, arguments=("--worker", kind), seeds=(0, 1, 2), quick_arguments=("--blocks", "8")
        )
        for kind in KINDS
    ),
    bars=tuple(_bars()),
)


@kernel
def choose(mask: NDArray[np.bool_], uniforms: NDArray[np.float64], actions: NDArray[np.int64]) -> None:
    """Write one legal action of each row, each as likely."""
    for i in range(len(mask)):
        left = int(uniforms[i] * mask[i].sum())
        for a in range(mask.shape[1]):
            if mask[i, a]:
                if left == 0:
                    actions[i] = a
                    break
                left -= 1


def random_actions(due: Sequence[Any], rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """Return actions for due rows, uniform among the legal ones."""
    out = []
    for rows in due:
        actions = np.zeros(len(rows.slot), np.int64)
        choose(rows.mask, rng.random(len(actions)), actions)
        out.append(actions)
    return tuple(out)


def _vector(game: str, tensors: str, kind: str, seed: int) -> Callable[[float], tuple[int, float]]:
    """Return what steps for so many seconds: (steps, seconds of the processor in `step`)."""
    from ludus.envs.registry import make_env

    size = _SIZE_OF_LARGE_ROWS if kind == "arrays" and game in _LARGE_ROWS else _SIZES[kind]
    fast = "on" if kind == "arrays" else "off"
    env = make_env(f"openspiel/{game}", num_envs=size, tree="off", fast=fast, observation=tensors)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    timestep = env.reset(rng.integers(2**63, size=size, dtype=np.uint64))

    def play(seconds: float) -> tuple[int, float]:
        nonlocal timestep
        spent, steps = 0.0, 0
        while spent < seconds:
            actions = random_actions(timestep.due, rng)
            begun = time.process_time()
            timestep = env.step(actions)
            spent += time.process_time() - begun
            steps += size
        return steps, spent

    return play


def _bare(game: str, tensors: str, seed: int) -> Callable[[float], tuple[int, float]]:
    import pyspiel

    loaded = pyspiel.load_game(game)
    tensor = f"{tensors}_tensor"
    rng = random.Random(seed)
    players = range(loaded.num_players())

    def episode() -> int:
        state, steps = loaded.new_initial_state(), 0
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes = state.chance_outcomes()
                state.apply_action(outcomes[int(rng.random() * len(outcomes))][0])  # these games' chance is uniform
                continue
            movers = players if state.is_simultaneous_node() else (state.current_player(),)
            moves = []
            for p in movers:
                getattr(state, tensor)(p)
                legal = state.legal_actions(p)
                moves.append(legal[int(rng.random() * len(legal))])
            if state.is_simultaneous_node():
                state.apply_actions(moves)
            else:
                state.apply_action(moves[0])
            steps += 1
        state.returns()
        return steps

    def play(seconds: float) -> tuple[int, float]:
        begun, steps = time.process_time(), 0
        while (spent := time.process_time() - begun) < seconds:
            steps += sum(episode() for _ in range(20))
        return steps, spent

    return play


def _measured(kind: str, seed: int, blocks: int) -> dict[str, float]:
    if kind == "compile":
        return _compile_seconds()
    import pyspiel

    figures = {}
    for game in GAMES:
        known = pyspiel.load_game(game).get_type()
        for tensors in TENSORS:
            if tensors == "information_state" and not known.provides_information_state_tensor:
                continue
            play = _bare(game, tensors, seed) if kind == "bare" else _vector(game, tensors, kind, seed)
            play(0.1)
            rates = [steps / spent for steps, spent in (play(0.05) for _ in range(blocks))]
            figures[figure(game, tensors)] = max(rates)
    return figures


def _compile_seconds() -> dict[str, float]:
    """Return the seconds of the processor until a game's kernel is compiled, with a cache that is empty."""
    from numba import config

    with tempfile.TemporaryDirectory() as folder:
        config.CACHE_DIR = folder  # before the kernels' modules are imported
        from ludus.envs.registry import make_env

        figures = {}
        for game in GAMES:
            env = make_env(f"openspiel/{game}", num_envs=1, tree="off", fast="on")
            begun = time.process_time()
            env.reset(np.zeros(1, np.uint64))
            figures[f"{game}: compile seconds"] = time.process_time() - begun
    return figures


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--blocks", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(PACKAGES)
    lines.figures(_measured(args.worker, args.seed, args.blocks))
    return 0


def _lockstep(argv: Sequence[str]) -> int:
    from benchmarks.openspiel_arrays_lockstep import compare

    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE} --lockstep")
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("games", nargs="*", default=FORMS, help="game strings; default: every form that is known here")
    parser.add_argument("--moves", type=int, default=1_000_000, help="of every game")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    import pyspiel

    for game in args.games:
        known = pyspiel.load_game(game).get_type()
        tensors = [t for t in TENSORS if getattr(known, f"provides_{t}_tensor")]
        begun = time.perf_counter()
        moves = sum(
            compare(game, moves=args.moves // len(tensors), tensors=t, seed=args.seed, openings=3 * k)
            for k, t in enumerate(tensors)
        )
        print(
            f"{game}: {moves:,} moves are equal ({', '.join(tensors)}; {time.perf_counter() - begun:.0f} s)", flush=True
        )
    return 0


if __name__ == "__main__":
    if "--worker" in sys.argv:
        sys.exit(_work(sys.argv[1:]))
    sys.exit(_lockstep(sys.argv[1:]) if "--lockstep" in sys.argv else BENCHMARK.main())
