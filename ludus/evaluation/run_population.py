"""Population exploitability of a stored run whose game is a compiled tree: of the best mixture of its policies, whatever its meta-solver
made of them. Where there is no tree, `ludus.exploit_population` approximates it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.envs.game_tree import GameTree
from ludus.errors import ScenarioError
from ludus.evaluation.population_exploitability import PopulationExploitability, population_exploitability
from ludus.evaluation.stored import StoredRun
from ludus.types import PolicyRef


@dataclass(frozen=True, slots=True, eq=False)
class PopulationReport:
    """names: [2] of each player's policies, in the order of `found.mixtures`. found: computed, not sampled."""

    run_dir: Path
    env: str
    generation: int
    names: tuple[tuple[str, ...], ...]
    found: PopulationExploitability

    @property
    def exploitability(self) -> float:
        """Half the NashConv of the least exploitable mixtures."""
        return self.found.nash_conv / 2


def evaluate_population(run_dir: Path | str) -> PopulationReport:
    """How exploitable the least exploitable mixture of each player's policies is. Nothing is written.

    Raises RunError for an unreadable run; ScenarioError for a game without a tree, one that is not zero-sum for two, and policies with
    memory.
    """
    stored = StoredRun(Path(run_dir))
    tree = tree_of(stored)
    if tree is None:
        raise ScenarioError(
            f"{stored.scenario.env.id} is not compiled into a tree, so the best mixture of policies cannot be computed. Approximate it: "
            "`ludus evaluate RUN --population --exploit EPISODES`, or ludus.exploit_population."
        )
    found = population_exploitability(tree, stored_plans(stored, tree))
    names = tuple(tuple(stored.names(player)) for player in range(tree.num_players))
    return PopulationReport(stored.folder, stored.scenario.env.id, stored.generation, names, found)


def tree_of(stored: StoredRun) -> GameTree | None:
    """The compiled tree of the run's game, if it has one."""
    env = stored.scenario.env.make(num_envs=1)
    tree = getattr(env, "tree", None)
    env.close()
    return tree if isinstance(tree, GameTree) else None


def stored_plans(stored: StoredRun, tree: GameTree) -> list[NDArray[np.float64]]:
    """[P] float64[n_p, S_p]: the realisation plans of all policies that can play for each player, in the order of their population. Raises
    ScenarioError for a policy that depends on more than the information state (it has memory, say)."""
    return [
        np.stack([_plan(stored, tree, player, record.ref) for record in stored.members[which]])
        for player, which in enumerate(stored.population)
    ]


def _plan(stored: StoredRun, tree: GameTree, player: int, ref: PolicyRef) -> NDArray[np.float64]:
    table = stored.policy(ref).tabulate(tree.enumeration, player, mode=ref.mode)
    if table is None:
        raise ScenarioError(
            f"policy {ref.policy!r} of {str(stored.folder)!r} has memory, so what it does on {tree.spec.id} can be played, not computed."
        )
    return tree.realisation(player, table)
