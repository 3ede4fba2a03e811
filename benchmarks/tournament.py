"""100 policies against each other on Leduc poker (4,950 pairs, 100 episodes each), one core: played, stored and reported; and computed.

    python -m benchmarks.tournament [--quick]

The policies are 64 x 64 networks (tanh), made different by noise on their weights. `play` is `ludus tournament` without its start: 50 deals
of every pair, each in both orders of the seats, SQLite and the report included. The game is compiled, so policies become tables; `play
networks` steps OpenSpiel's states and evaluates the networks at every decision. `exact` is `--exact`: every pair's expected return from the
tree. `openspiel play` steps OpenSpiel's states one at a time and looks each decision up in a table; `openspiel exact` is its
`expected_game_score.policy_value`. Both do a part of the pairs, which is counted up to 4,950. Figures are medians over a process's
repetitions after a first one that is not counted: by the wall clock, and of the processor.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import combinations, count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "open-spiel")
KINDS = ("play", "play networks", "exact", "openspiel play", "openspiel exact")
POLICIES, DEALS, PAIRS = 100, 50, 4950
SECONDS, CORE = "seconds", "core seconds"
Times = tuple[float, float]
"""Seconds by the wall clock, and of the processor."""
_MODULE = "benchmarks.tournament"
_GAME = "openspiel/leduc_poker"


def _contestant(kind: str, *, repetitions: int) -> Contestant:
    return Contestant(
        name=kind,
        module=_MODULE,
        arguments=("--worker", kind, "--repetitions", str(repetitions)),
        quick_arguments=("--repetitions", "1"),
    )


BENCHMARK = Benchmark(
    name="tournament",
    contestants=(
        _contestant("play", repetitions=5),
        _contestant("play networks", repetitions=1),
        _contestant("exact", repetitions=5),
        _contestant("openspiel play", repetitions=3),
        _contestant("openspiel exact", repetitions=3),
    ),
    bars=(
        Bar("play", "<= 15", lambda medians: medians("play", SECONDS), unit=" s"),
        Bar("exact", "<= 0.5", lambda medians: medians("exact", SECONDS), unit=" s"),
    ),
)


def _policies(seed: int) -> list[Any]:
    from ludus.policies.actor_critic import initial_weights
    from ludus.policies.actor_critic_policy import ActorCriticPolicy
    from ludus.policies.specs import mlp_spec

    rng = np.random.default_rng(seed)
    spec = mlp_spec(inputs=30, actions=3, hidden=[64, 64])
    start = initial_weights(spec, rng)
    return [
        ActorCriticPolicy(spec, {name: a + rng.normal(0, 0.3, a.shape).astype(np.float32) for name, a in start.items()})
        for _ in range(POLICIES)
    ]


def _ludus(kind: str, seed: int) -> Callable[[], Times]:
    """A function that holds the tournament and returns what it took."""
    from ludus.envs.config import Environment
    from ludus.policies.file import digest_of
    from ludus.tournament.entrants import Entrant, EntrantPlayer, EntrantSeat, TournamentField
    from ludus.tournament.run import Options, exact_tournament, run_tournament

    settings = Environment(id=_GAME, tree="off" if kind == "play networks" else "on")
    spec = settings.make(num_envs=1).spec
    entrants = []
    for k, policy in enumerate(_policies(seed)):
        seat = EntrantSeat((EntrantPlayer(str(k), policy),), (1.0,))
        entrants.append(Entrant(f"policy {k}", (seat, seat), digest_of(policy), "mlp"))
    field = TournamentField(settings, spec, tuple(entrants))
    number = count()

    def play(folder: Path) -> None:
        options = Options(episodes=DEALS, seed=seed)
        report = run_tournament(field, folder / str(next(number)), options)
        assert report.episodes == 2 * DEALS * PAIRS

    def timed() -> Times:
        with tempfile.TemporaryDirectory() as folder:
            begun = _now()
            if kind == "exact":
                exact_tournament(field)
            else:
                play(Path(folder))
            return _since(begun)

    return timed


def _tables(seed: int) -> list[list[dict[str, list[float]]]]:
    """Per policy and player: information state -> probabilities."""
    from ludus.envs.tree.game_tree import compile_tree

    enumeration = compile_tree("leduc_poker").enumeration
    tables = []
    for policy in _policies(seed):
        seats = []
        for p in range(2):
            probs = policy.tabulate(enumeration, p)
            seats.append(dict(zip(enumeration.key[enumeration.ids(p)], probs.tolist(), strict=True)))
        tables.append(seats)
    return tables


def _openspiel_play(seed: int) -> Callable[[], Times]:
    import pyspiel

    game, tables, rng = pyspiel.load_game("leduc_poker"), _tables(seed), random.Random(seed)
    pairs = list(combinations(range(POLICIES), 2))
    episodes = 5000

    def timed() -> Times:
        begun = _now()
        for k in range(episodes):
            pair = pairs[k % PAIRS]
            state = game.new_initial_state()
            while not state.is_terminal():
                if state.is_chance_node():
                    outcomes = state.chance_outcomes()
                    state.apply_action(outcomes[int(rng.random() * len(outcomes))][0])  # Leduc's chance is uniform
                    continue
                p = state.current_player()
                probs = tables[pair[p]][p][state.information_state_string(p)]
                state.apply_action(rng.choices((0, 1, 2), probs)[0])
            state.returns()
        return _since(begun, parts=2 * DEALS * PAIRS / episodes)

    return timed


def _openspiel_exact(seed: int) -> Callable[[], Times]:
    import pyspiel
    from open_spiel.python import policy
    from open_spiel.python.algorithms import expected_game_score

    game, tables = pyspiel.load_game("leduc_poker"), _tables(seed)

    class Tabled(policy.Policy):  # type: ignore[misc]
        def __init__(self, k: int) -> None:
            super().__init__(game, [0, 1])
            self._tables = tables[k]

        def action_probabilities(self, state: Any, player_id: int | None = None) -> dict[int, float]:
            player = state.current_player() if player_id is None else player_id
            probs = self._tables[player][state.information_state_string(player)]
            return {action: probs[action] for action in state.legal_actions(player)}

    players = [Tabled(k) for k in range(4)]

    def timed() -> Times:
        pairs = list(combinations(players, 2))[:3]
        begun = _now()
        for a, b in pairs:
            for order in ((a, b), (b, a)):
                expected_game_score.policy_value(game.new_initial_state(), list(order))
        return _since(begun, parts=PAIRS / len(pairs))

    return timed


def _now() -> Times:
    return time.perf_counter(), time.process_time()


def _since(begun: Times, *, parts: float = 1.0) -> Times:
    """What a whole takes, of which one part took the time since `begun`."""
    wall, core = _now()
    return (wall - begun[0]) * parts, (core - begun[1]) * parts


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=KINDS, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.worker == "openspiel play":
        timed = _openspiel_play(args.seed)
    elif args.worker == "openspiel exact":
        timed = _openspiel_exact(args.seed)
    else:
        timed = _ludus(args.worker, args.seed)
    timed()  # compiles
    lines = Lines(PACKAGES)
    wall, core = zip(*(timed() for _ in range(args.repetitions)), strict=True)
    lines.figures({SECONDS: median(wall), CORE: median(core)})
    return 0


if __name__ == "__main__":
    sys.exit(_work(sys.argv[1:]) if "--worker" in sys.argv else BENCHMARK.main())
