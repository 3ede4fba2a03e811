"""Play an exported agent for ConnectX in kaggle-environments, from both seats.

    ludus train connect-four-self-play --name four
    ludus export four --to kaggle --out main.py
    pip install --no-deps kaggle-environments==1.33.2       # its board games need no more than Ludus has
    python -m benchmarks.kaggle_connectx main.py --opponent negamax --games 40

Exit status 1 unless the agent wins more games than it loses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


def play(make: Any, agents: list[str]) -> list[dict[str, Any]]:
    """Return the last states of both players of one game."""
    game = make("connectx")
    game.run(agents)
    last: list[dict[str, Any]] = game.steps[-1]
    return last


def main() -> int:
    """Play the games, and print won, drawn and lost ones by seat."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("agent", help="file whose last function is the agent")
    parser.add_argument("--opponent", default="negamax", help="built-in agent, or another file")
    parser.add_argument("--games", type=int, default=40)
    options = parser.parse_args()
    try:
        from kaggle_environments import make
    except ImportError as error:
        parser.error(f"{error}: pip install --no-deps kaggle-environments==1.33.2")
    tally = Counter[tuple[int, str]]()
    begin = time.perf_counter()
    for number in range(options.games):
        seat = number % 2
        agents = [options.agent, options.opponent]
        states = play(make, agents if seat == 0 else agents[::-1])
        status, reward = states[seat]["status"], states[seat]["reward"]
        tally[seat, "failed" if status != "DONE" else {1: "won", -1: "lost"}.get(reward, "drawn")] += 1
        print(f"\r{number + 1} of {options.games}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for seat, name in enumerate(("first", "second")):
        counts = ", ".join(f"{tally[seat, how]} {how}" for how in ("won", "drawn", "lost", "failed"))
        print(f"{name} player: {counts}")
    size = Path(options.agent).stat().st_size if Path(options.agent).is_file() else 0
    print(f"{size / 1e6:.2f} MB, {(time.perf_counter() - begin) / options.games:.2f} s a game")
    won, lost = (sum(tally[seat, how] for seat in range(2)) for how in ("won", "lost"))
    return int(won <= lost)


if __name__ == "__main__":
    sys.exit(main())
