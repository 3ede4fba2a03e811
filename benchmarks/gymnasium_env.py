"""Random play of one player through `ludus.gymnasium_vector_env`, against the same through Shimmy's OpenSpiel.

    python -m benchmarks.gymnasium_env [--only leduc_poker …] [--quick]

Both sides play one player by legal actions that the caller draws from the masks, and random opponents; what is counted is the decisions of
that player per second. Ludus draws its opponents' actions inside, Shimmy's loop has to draw them, too. Shimmy is taken at its best: one
environment, whose masks are read where it keeps them, and which is reset without the steps of agents that have ended.
Both run in this process with one thread, in turn, five times each (three with `--quick`); times are process times, medians are compared.
The last lines are bars: at least 20 times as many with 1,024 environments. Rows with 64 are told without a bar. The results go to
benchmarks/results/gymnasium_env.json, with `--only` or `--quick` to gymnasium_env.quick.json.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import ludus
from benchmarks.contestants import Repetition
from benchmarks.harness import Bar, Medians
from benchmarks.lines import versions
from benchmarks.machine import ROOT
from benchmarks.results import result_path, write

GAMES = ("kuhn_poker", "leduc_poker", "tic_tac_toe", "connect_four")
SIZES = (64, 1024)
JUDGED = 1024
FIGURE = "decisions per second"
SHIMMY_DECISIONS, LUDUS_STEPS = 3000, 300

Play = Callable[[int], int]
"""Play at least so many decisions of player 0, or steps of the vector; returns the decisions."""


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant. amount: what one repetition plays."""

    name: str
    make: Callable[[], Play]
    amount: int


def shimmy(game: str) -> Play:
    """Player 0 and its opponent choose uniformly among the legal actions of Shimmy's environment."""
    from shimmy import OpenSpielCompatibilityV0

    env = OpenSpielCompatibilityV0(game_name=game)
    env.reset(seed=0)
    choose = random.Random(0).choice

    def play(amount: int) -> int:
        count = 0
        while count < amount:
            agent = env.agent_selection
            if env.terminations[agent] or env.truncations[agent]:
                env.reset()
                continue
            observation, _, _, _, info = env.last()
            assert observation is not None
            env.step(choose(np.flatnonzero(info["action_mask"]).tolist()))
            count += agent == "player_0"
        return count

    return play


def vector(game: str, num_envs: int) -> Play:
    """Player 0 chooses uniformly among the legal actions of the vector."""
    envs = ludus.gymnasium_vector_env(f"openspiel/{game}", num_envs=num_envs, autoreset_mode="same_step")
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    masks = envs.action_masks()

    def play(amount: int) -> int:
        nonlocal masks
        for _ in range(amount):
            actions = (rng.random(masks.shape, np.float32) * masks).argmax(axis=1)
            _, _, _, _, infos = envs.step(actions)
            masks = infos["action_mask"]
        return amount * num_envs

    return play


def rows_of(game: str) -> tuple[Row, ...]:
    """The contestants of a game."""
    ours = [Row(f"Ludus, {game}, {n}", partial(vector, game, n), LUDUS_STEPS) for n in SIZES]
    return Row(f"Shimmy, {game}", partial(shimmy, game), SHIMMY_DECISIONS), *ours


def bar_of(game: str) -> Bar:
    """What is asked for."""
    fast, slow = f"Ludus, {game}, {JUDGED}", f"Shimmy, {game}"
    return Bar(f"{game}, {JUDGED} environments", ">= 20", lambda m: m(fast, FIGURE) / m(slow, FIGURE), " x")


def measured(rows: Sequence[Row], *, repetitions: int, quick: bool) -> dict[str, list[Repetition]]:
    """Every row of a game in turn, after a start that is not counted."""
    plays: dict[str, Play] = {}
    found: dict[str, list[Repetition]] = {row.name: [] for row in rows}
    for row in rows:
        plays[row.name] = row.make()
        plays[row.name](max(1, row.amount // 20))
    for k in range(repetitions):
        for row in rows:
            amount = max(1, row.amount // 5) if quick else row.amount
            begun = time.process_time()
            decisions = plays[row.name](amount)
            speed = decisions / (time.process_time() - begun)
            found[row.name].append(
                Repetition(k, {FIGURE: speed}, versions=versions(("gymnasium", "open-spiel", "pettingzoo", "shimmy")))
            )
    return found


def main(argv: Sequence[str] | None = None, *, rows: Callable[[str], Sequence[Row]] = rows_of) -> int:
    """Prints a table and the bars, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GAMES, default=(), metavar="GAME")
    parser.add_argument("--quick", action="store_true", help="three repetitions of a fifth")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of result files")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    found: dict[str, list[Repetition]] = {}
    games = [game for game in GAMES if not args.only or game in args.only]
    print(f"{'row':32}{'decisions/s':>14}{'times Shimmy':>14}")
    for game in games:
        here = measured(rows(game), repetitions=3 if args.quick else 5, quick=args.quick)
        found |= here
        medians = Medians(here)
        slow = medians(f"Shimmy, {game}", FIGURE)
        for name in here:
            print(f"{name:32}{medians(name, FIGURE):>14,.0f}{medians(name, FIGURE) / slow:>14.1f}", flush=True)
    outcomes = [bar_of(game).judge(Medians(found)) for game in games]
    path = result_path("gymnasium_env", part=args.quick or bool(args.only), folder=args.results)
    write(path, name="gymnasium_env", quick=args.quick, measured=found, carried={}, outcomes=outcomes)
    for outcome in outcomes:
        print(outcome.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
