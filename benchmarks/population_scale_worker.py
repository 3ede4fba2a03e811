"""The worker of `benchmarks.population_scale`: a league that grows to 1,000 policies, step by step.

python -m benchmarks.population_scale_worker [--policies 1000] --seed 0
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.lines import Lines
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.ppo.config import PPO
from ludus.core import seeding
from ludus.core.types import Match, PolicyRef, Weights
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import GameTree
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchRunner, outcomes
from ludus.metagame.population.agent_manager import AgentManager
from ludus.metagame.population.match_log import moments
from ludus.metagame.population.ratings.bradley_terry import BradleyTerry
from ludus.metagame.population.ratings.win_counts import count_pairs, pairwise_results
from ludus.metagame.solvers.nash import Nash
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.rollout.base import PlannedEpisodes
from ludus.rollout.host import LocalRollouts
from ludus.storage.base import RunInfo
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.reader import Reader
from ludus.storage.store import Store

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")
GAME = "openspiel/leduc_poker"
OPPONENTS, EPISODES = 20, 100  # of each new policy
ADDING = ("add", "play", "commit", "exact payoffs", "rate", "solve")  # the rest are questions about the whole league
MORE = 10  # are added one by one: some write what waits in the log to the database, or make arrays grow
_ENVS = 2000


class League:
    """Two populations of small networks on Leduc poker, with their database and files."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.env = make_env(GAME, num_envs=_ENVS)
        tree = getattr(self.env, "tree", None)
        assert isinstance(tree, GameTree)
        spec = self.env.spec
        info = RunInfo("league", folder, "league", GAME, "PPO", seed, "", (0, 1), spec.utility_range, zero_sum=True)
        self.folder, self.store, self.files = folder, Store.create(folder, info), PolicyFiles(folder)
        self.manager = AgentManager(
            utility_range=spec.utility_range,
            population=(0, 1),
            zero_sum=True,
            recorder=self.store,
            store=self.files,
        )
        self.exact = ExactEvaluator(tree, (0, 1))
        self.policies: list[list[Policy]] = [[], []]
        self.rng = np.random.default_rng(seed)
        self.specs = [PPO(hidden=(64, 64)).policy(spec, (player,)) for player in (0, 1)]
        self.matches = 0
        self._warm = None
        self._solver = Nash(tolerance=1e-4)

    def grow(self, count: int) -> dict[str, float]:
        """Add so many policies to each population, and do with the league what a league needs; the processor's seconds of each part."""
        seconds: dict[str, float] = {}
        for name, part in (
            ("add", lambda: [self._add(player) for _ in range(count) for player in (0, 1)]),
            ("play", lambda: self._play(count)),
            ("commit", self._commit),
            ("exact payoffs", self._payoffs),
            ("rate", self.manager.elo),
            ("solve", self._solve),
            ("list", self._list),
            ("rate with intervals", self._rate_with_intervals),
        ):
            begun = time.process_time()
            part()
            seconds[name] = time.process_time() - begun
        return seconds

    def _add(self, player: int) -> None:
        """A perturbed one of those that are there."""
        name = f"{player}-{len(self.policies[player])}"
        ref = self.manager.add(player, name, self.specs[player], self._weights(player))
        policy = build_policy(*self.manager.weights_of(ref))
        self.policies[player].append(policy)
        self.exact.add(ref, policy)

    def _weights(self, player: int) -> Weights:
        if not self.policies[player]:
            context = LearnerContext(env=self.env.spec, seats=(player,), seed=0)
            return PPO(hidden=(64, 64)).learner(context, None).weights()
        parent = self.policies[player][self.rng.integers(len(self.policies[player]))].weights()
        return {
            name: array + self.rng.normal(0, 0.1, array.shape).astype(array.dtype) for name, array in parent.items()
        }

    def _play(self, count: int) -> None:
        """Matches of each new policy with opponents drawn from the whole other population: all episodes in one batch."""
        sizes = [len(some) for some in self.policies]
        profiles = []
        for player in (0, 1):
            for k in range(sizes[player] - count, sizes[player]):
                some = self.rng.choice(sizes[1 - player], min(OPPONENTS, sizes[1 - player]), replace=False)
                profiles += [(k, int(o)) if player == 0 else (int(o), k) for o in some]
        profiles = list(dict.fromkeys(profiles))
        policies = {PolicyRef(p, f"{p}-{k}"): policy for p in (0, 1) for k, policy in enumerate(self.policies[p])}
        seats = np.repeat(np.array(profiles, np.int32) + np.array([0, sizes[0]], np.int32), EPISODES, axis=0)
        luck, own = (seeding.keys(0, name, sizes[0], count=len(seats)) for name in ("luck", "own"))
        rollouts = LocalRollouts.around(self.env)
        episodes = PlannedEpisodes(tuple(policies), seats, luck, own)
        played = MatchRunner(rollouts, policies.__getitem__, seed=0).play_planned(episodes).returns
        returns = played.reshape(len(profiles), EPISODES, 2)
        self.manager.record_matches(_match(profile, played) for profile, played in zip(profiles, returns, strict=True))
        self.matches = len(profiles)

    def _commit(self) -> None:
        self.files.sync()
        self.store.commit(f"barrier-{len(self.policies[0])}")

    def _payoffs(self) -> None:
        """Exact ones of the new profiles: they replace the sampled ones in the table that is solved."""
        self.table = self.exact.payoffs()

    def _rate_with_intervals(self) -> None:
        sizes = self.manager.table.population_sizes
        found = count_pairs(pairwise_results(self.manager.table.log, sizes, (0, 1)), sum(sizes))
        BradleyTerry(ties="half").fit(found, sizes=sizes)

    def _solve(self) -> None:
        self.manager.record_exact(self.table)
        rng = seeding.generator(0, "solve", len(self.policies[0]))
        self._warm = self._solver.solve(self.manager.view().payoffs, warm=self._warm, rng=rng).warm

    def _list(self) -> None:
        with Reader(self.folder) as reader:
            assert len(reader.policies()) == sum(len(some) for some in self.policies)


def _match(profile: tuple[int, int], returns: np.ndarray) -> Match:
    found = moments(returns)
    seats = tuple(PolicyRef(p, f"{p}-{k}") for p, k in enumerate(profile))
    name = "-".join(map(str, profile))
    return Match(f"match-{name}", profile, seats, len(returns), found.mean, found.m2, wins=outcomes(returns))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    step = 50  # of each population
    with tempfile.TemporaryDirectory() as folder:
        warm = League(Path(folder) / "warm", args.seed)
        with closing(warm.store):
            warm.grow(2)
            warm.grow(1)
        league = League(Path(folder) / "league", args.seed)
        lines = Lines(PACKAGES)
        with closing(league.store):
            for size in range(step, args.policies // 2 + 1, step):
                seconds = league.grow(step)
                used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                lines.point(policies=2.0 * size, matches=league.matches, megabytes=used, **seconds)
                if 2 * size in (100, args.policies):
                    ones = [league.grow(1) for _ in range(MORE)]  # the next ones of each population, one by one
                    one = {name: statistics.fmean(each[name] for each in ones) for name in ones[0]}
                    whole = sum(one[name] for name in ADDING)
                    lines.figures(
                        {
                            f"policies {2 * size + 1} and {2 * size + 2}, seconds": whole,
                            f"policies {2 * size + 1} and {2 * size + 2}, seconds per match": whole / league.matches,
                            **{f"policy {2 * size + 1}, {name}": value for name, value in one.items()},
                        }
                    )


if __name__ == "__main__":
    main()
