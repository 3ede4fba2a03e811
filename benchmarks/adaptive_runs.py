"""The worker of `benchmarks.adaptive_evaluation` for real runs: a run of self-play, whose payoffs are then played in several ways.

python -m benchmarks.adaptive_runs --game leduc --seed 0

The run is trained once; self-play learns nothing from its payoffs, so its policies are the same however these are found. Then its
generations are evaluated one after the other, as its scheduler would: matches that were played stay in the table, those of the next
generation come to them, and the meta-solver says what has weight. Ways: `even`, so many episodes of every profile; `three times even`; and
`adaptive`, the scheduler's own selection with as many episodes as `even` in all, the same budget in each generation. Every profile has luck
of its own, as in runs.

The figure is the mean over generations of what the meta-strategy loses in the meta-game (NashConv by exact payoffs), over several lucks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import Lines
from benchmarks.machine import ROOT, commit, today
from ludus.core import seeding
from ludus.core.config import to_yaml
from ludus.core.types import PolicyRef
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.matches import MatchRunner
from ludus.evaluation.population_exploitability import stored_plans
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.normal_form import nash_conv
from ludus.metagame.solvers.projected_replicator_dynamics import ProjectedReplicatorDynamics
from ludus.policies.registry import build_policy
from ludus.policies.specs import tabular_spec
from ludus.rollout.base import PlannedEpisodes
from ludus.rollout.host import LocalRollouts
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.schedulers.planning import AdaptiveSelection, AllMissing, MatchSelection
from ludus.storage.stored_run import open_run

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")
GOOFSPIEL = "openspiel/goofspiel(imp_info=True,num_cards=4,points_order=descending)"
RUNS: dict[str, dict[str, Any]] = {
    "leduc": {"env": "openspiel/leduc_poker", "episodes": 15000, "generations": 40, "even": 31},
    "goofspiel": {"env": GOOFSPIEL, "episodes": 5000, "generations": 40, "even": 31},
    "kuhn, 3 players": {"env": "openspiel/kuhn_poker(players=3)", "episodes": 2000, "generations": 12, "even": 10},
}
"""even: episodes of every profile."""
PORTION, START, BATCH = 20, 3, 1000
LUCKS = 4
CELLS = ROOT / "benchmarks" / "results" / "adaptive_evaluation"


class Population:
    """The policies of a finished run on a game tree, in which every player has a population of its own, and what was played of them."""

    def __init__(self, folder: Path) -> None:
        stored = open_run(folder)
        env = stored.env.make(num_envs=1)
        tree = find_tree(env)
        env.close()
        assert tree is not None
        assert len(set(stored.population)) == len(stored.population)
        plans = stored_plans(stored, tree)
        self.exact, self.sizes = tree.payoffs(plans), tuple(map(len, plans))
        self.env = stored.env.make(num_envs=4000)
        policies = {}
        spec = tabular_spec(tree.enumeration, tuple(range(tree.num_players)))
        for p, some in enumerate(plans):
            for k, plan in enumerate(some):
                probs = tree.enumeration.mask / tree.enumeration.mask.sum(axis=1, keepdims=True)
                own = tree.enumeration.ids(p)
                probs[own.start : own.stop] = tree.behavior(p, plan)
                policies[PolicyRef(p, str(k), version=0)] = build_policy(spec, {"probs": probs})
        self._refs, self._offset = tuple(policies), np.cumsum([0, *self.sizes[:-1]])
        self._player = MatchRunner(LocalRollouts.around(self.env), policies.__getitem__, seed=0)
        self.begin(0)

    def begin(self, luck: int) -> None:
        """Nothing is played yet; another luck is another sample."""
        self._luck, self.count = seeding.generator(luck, "real run"), np.zeros(self.sizes, np.int64)
        self._sum, self._squares = np.zeros_like(self.exact), np.zeros_like(self.exact)

    def play(self, profiles: Sequence[tuple[int, ...]], episodes: int) -> None:
        """So many more of each profile, each time that it is listed."""
        cells = np.repeat(np.array(profiles), episodes, axis=0)
        luck = self._luck.integers(0, 2**64, size=(2, len(cells)), dtype=np.uint64)
        planned = PlannedEpisodes(self._refs, (cells + self._offset).astype(np.int32), *luck)
        returns, where = self._player.play_planned(planned).returns, tuple(cells.T)
        np.add.at(self.count, where, 1)
        for p in range(len(self.sizes)):
            np.add.at(self._sum[p], where, returns[:, p])
            np.add.at(self._squares[p], where, returns[:, p] ** 2)

    def view(self, n: int) -> Payoffs:
        """Of the first n policies of each player."""
        part = (slice(0, n),) * len(self.sizes)
        count, total = self.count[part], self._sum[(slice(None), *part)]
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        m2 = np.where(count > 0, self._squares[(slice(None), *part)] - count * np.nan_to_num(mean) ** 2, 0.0)
        return self._payoffs(mean, count, np.maximum(m2, 0.0), exact=False)

    def truth(self, n: int) -> Payoffs:
        """The same, exact."""
        mean = self.exact[(slice(None), *(slice(0, n),) * len(self.sizes))]
        return self._payoffs(mean, np.zeros(mean.shape[1:], np.int64), np.zeros_like(mean), exact=True)

    def _payoffs(self, mean: Any, count: Any, m2: Any, *, exact: bool) -> Payoffs:
        spec, players = self.env.spec, tuple(range(len(self.sizes)))
        return Payoffs(mean, count, m2, np.full(count.shape, exact), spec.utility_range, players, spec.zero_sum)


def evaluated(
    population: Population, selection: MatchSelection, solver: MetaSolver, *, portion: int, luck: int
) -> tuple[float, int]:
    """(mean NashConv of the generations' meta-strategies in the true meta-game, episodes in all)."""
    population.begin(luck)
    found = []
    for n in range(1, max(population.sizes) + 1):
        game = dict.fromkeys(range(len(population.sizes)), range(n))
        selection.begin()
        while profiles := selection.next_profiles(population.view(n), game=game):
            population.play(profiles, portion)
        solution = solver.solve(selection.completed(population.view(n)), rng=seeding.generator(luck, "solve", n))
        found.append(nash_conv(population.truth(n), solution.strategies))
    return float(np.mean(found)), int(population.count.sum())


def ways(population: Population, *, even: int, lucks: int) -> dict[str, float]:
    """Figures of each way to play, in the mean over lucks."""
    solver: MetaSolver = Nash() if len(population.sizes) == 2 else ProjectedReplicatorDynamics(iterations=2000)
    budget = even * population.exact[0].size // max(population.sizes)
    found: dict[str, list[tuple[float, int]]] = {}
    for luck in range(lucks):
        adaptive = AdaptiveSelection(
            solver=solver, budget=budget, portion=PORTION, episodes=even, seed=luck, start=START, batch=BATCH
        )
        for name, selection, portion in (
            ("even", AllMissing(), even),
            ("three times even", AllMissing(), 3 * even),
            ("adaptive", adaptive, PORTION),
        ):
            result = evaluated(population, selection, solver, portion=portion, luck=luck)
            found.setdefault(name, []).append(result)
    figures = {}
    for name, results in found.items():
        figures[f"{name}, NashConv"] = float(np.mean([value for value, _ in results]))
        figures[f"{name}, episodes"] = float(np.mean([episodes for _, episodes in results]))
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    """Prints lines for the harness."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=tuple(RUNS), required=True)
    parser.add_argument("--generations", type=int, help="fewer; such a cell is not kept")
    parser.add_argument("--lucks", type=int, default=LUCKS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    chosen = RUNS[args.game]
    lines = Lines(PACKAGES)
    cell = CELLS / f"{args.game.replace(', ', '-').replace(' ', '-')}-{args.seed}.json"
    if args.generations is None and cell.exists():
        lines.figures(json.loads(cell.read_text(encoding="utf-8"))["figures"])
        return
    scenario = {
        "scenario": "self_play",
        "env": {"id": chosen["env"], "num_envs": 750},
        "algorithm": "ppo",
        "latest": 0.8,
        "past": "quality",
        "evaluation": {"exploitability": "off"},
        "generations": args.generations or chosen["generations"],
        "response": {"episodes": chosen["episodes"]},
        "seed": args.seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        run(parse_scenario(to_yaml(scenario)), run_dir=Path(folder) / "run", report=False)
        figures = ways(Population(Path(folder) / "run"), even=chosen["even"], lucks=args.lucks)
    lines.figures(figures)
    if args.generations is None:
        cell.parent.mkdir(parents=True, exist_ok=True)
        document = {"date": today(), "commit": commit(), "figures": figures}
        cell.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
