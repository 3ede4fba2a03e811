"""How fast trees are searched: simulations a second on one core, beside OpenSpiel's Monte Carlo tree search.

    python -m benchmarks.search [--quick]

Connect four, from positions with 0 to 8 stones, 200 simulations a move, one thread. Ludus searches 1, 16 and 256 games at a time, with the
preset's network for a leaf and with none (all moves alike, all values 0: what the trees themselves cost), and one game with 8 leaves
evaluated together. OpenSpiel searches one game at a time: in C++, with a random rollout for a leaf; and in Python (`open_spiel.python.
algorithms.mcts`, which its AlphaZero uses), asking the same network for each leaf. Medians over five turns.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "open-spiel", "torch")
GAMES = (1, 16, 256)
SIMULATIONS = 200
SECONDS = 5.0
"""Of each figure."""
_SELF = "benchmarks.search"

BENCHMARK = Benchmark(
    name="search",
    contestants=tuple(
        Contestant(name, _SELF, arguments=("--worker", name), quick_arguments=("--brief",))
        for name in ("Ludus", "OpenSpiel C++", "OpenSpiel Python")
    ),
    bars=(
        Bar(
            "with a network, 256 games, over OpenSpiel's Python search with the same network",
            ">= 10",
            lambda m: m("Ludus", "256 games, network") / m("OpenSpiel Python", "1 game, network"),
            unit="x",
        ),
        Bar(
            "without a network, 256 games, over OpenSpiel's C++ search with a rollout a leaf",
            ">= 2",
            lambda m: m("Ludus", "256 games, no network") / m("OpenSpiel C++", "1 game, rollouts"),
            unit="x",
        ),
    ),
)


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", choices=[c.name for c in BENCHMARK.contestants])
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    work = {"Ludus": _ludus, "OpenSpiel C++": _openspiel, "OpenSpiel Python": _openspiel_python}[args.worker]
    work(args.seed, 0.5 if args.brief else SECONDS)
    return 0


def _policy() -> Any:
    """The preset's, with fresh weights."""
    from ludus.algorithms.common.base import LearnerContext
    from ludus.policies.registry import build_policy
    from ludus.runs.scenario_files import load_scenario

    scenario = load_scenario("connect-four-alphazero")
    env = scenario.env.make(num_envs=1)
    learner = scenario.algorithm.learner(LearnerContext(env.spec, (0, 1), 0))
    return build_policy(learner.spec, learner.weights())


def _positions(count: int, seed: int) -> np.ndarray[Any, Any]:
    """int8[count, 43], each after 0 to 8 random moves."""
    from ludus.envs.rules import InARow

    rules, rng, out = InARow(6, 7, 4, gravity=True), np.random.default_rng(seed), list[Any]()
    while len(out) < count:
        position, over = np.zeros((1, rules.width), np.int8), False
        for _ in range(len(out) % 9):
            legal = np.flatnonzero(rules.legal(position)[0])
            moved = rules.step(position, rng.choice(legal, 1).astype(np.int32))
            position, over = moved.positions, over or moved.discount[0] == 0.0
            if over:
                break
        if not over:
            out.append(position[0])
    return np.stack(out)


def _per_second(search: Callable[[], int], seconds: float) -> float:
    """Simulations, which a call answers, a second; the first call does not count."""
    search()
    begun, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        done += search()
    return done / passed


def _ludus(seed: int, seconds: float) -> None:
    from ludus.policies.search.policy import KnownModel
    from ludus.policies.search.search import SearchSettings, search

    policy = _policy()
    rules = policy.model.rules
    nothing = KnownModel(rules, lambda x: (np.zeros((len(x), 7), np.float32), np.zeros(len(x), np.float32)))
    lines, figures = Lines(PACKAGES), {}
    for games, leaves in [(games, 1) for games in GAMES] + [(1, 8)]:
        settings = SearchSettings(simulations=SIMULATIONS, leaves=leaves)
        for name, model in (("network", policy.model), ("no network", nothing)):
            turns = _turns(_positions(max(games, 9), seed), games)

            def once(model: KnownModel = model, settings: SearchSettings = settings, turns: Any = turns) -> int:
                chosen = next(turns)
                search(model, model.roots(rules.observe(chosen), None), settings)
                return len(chosen) * SIMULATIONS

            title = f"{games} game{'s' * (games > 1)}{f' with {leaves} leaves' * (leaves > 1)}, {name}"
            figures[title] = _per_second(once, seconds)
    lines.figures(figures)


def _turns(positions: Any, games: int) -> Iterator[Any]:
    """So many of them at a time, again and again."""
    for first in itertools.count(step=games):
        yield positions[(first + np.arange(games)) % len(positions)]


def _states(seed: int) -> list[Any]:
    """The like as states of OpenSpiel's."""
    import pyspiel

    rng, out, game = np.random.default_rng(seed), list[Any](), pyspiel.load_game("connect_four")
    while len(out) < 9:
        state = game.new_initial_state()
        for _ in range(len(out) % 9):
            if not state.is_terminal():
                state.apply_action(int(rng.choice(state.legal_actions())))
        if not state.is_terminal():
            out.append(state)
    return out


def _openspiel(seed: int, seconds: float) -> None:
    import pyspiel

    states = itertools.cycle(_states(seed))
    rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(next(states).get_game(), rollouts, 2.0, SIMULATIONS, 1000, False, seed, False)

    def once() -> int:
        bot.mcts_search(next(states))
        return SIMULATIONS

    Lines(PACKAGES).figures({"1 game, rollouts": _per_second(once, seconds)})


def _openspiel_python(seed: int, seconds: float) -> None:
    from open_spiel.python.algorithms import mcts

    policy = _policy()

    class Network(mcts.Evaluator):  # type: ignore[misc]
        """As OpenSpiel's `AlphaZeroEvaluator`, whose cache is emptied before each search: it would know the positions of the one before."""

        def __init__(self) -> None:
            self.known: dict[str, tuple[Any, float]] = {}

        def _ask(self, state: Any) -> tuple[Any, float]:
            key = str(state)
            if key not in self.known:
                observation = np.array(state.observation_tensor(), np.float32)[None]
                found = policy.network.evaluate(observation)
                self.known[key] = found.out[0, :7], float(found.value[0])
            return self.known[key]

        def evaluate(self, state: Any) -> Any:
            value = self._ask(state)[1]
            return np.array([value, -value] if state.current_player() == 0 else [-value, value])

        def prior(self, state: Any) -> Any:
            logits, legal = self._ask(state)[0], state.legal_actions()
            shares = np.exp(logits[legal] - logits[legal].max())
            return list(zip(legal, shares / shares.sum(), strict=True))

    states, network = itertools.cycle(_states(seed)), Network()
    game = next(states).get_game()
    select = mcts.SearchNode.puct_value
    bot = mcts.MCTSBot(game, 1.25, SIMULATIONS, network, solve=False, child_selection_fn=select)

    def once() -> int:
        network.known.clear()
        bot.mcts_search(next(states))
        return SIMULATIONS

    Lines(PACKAGES).figures({"1 game, network": _per_second(once, seconds)})


if __name__ == "__main__":
    sys.exit(_work(sys.argv[1:]) if "--worker" in sys.argv else BENCHMARK.main())
