"""Population exploitability of a stored run whose game is a compiled tree: of the best mixture of its policies, whatever its meta-solver
made of them. Where there is no tree, `ludus.exploit_population` approximates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError, ScenarioError, SolverError
from ludus.core.types import PolicyRef
from ludus.core.user_code import standard_settings
from ludus.envs.tree.game_tree import GameTree, tree_of
from ludus.evaluation.evaluated_run import RunResult, facts_of, require_two_player_zero_sum
from ludus.evaluation.exact import tree_on
from ludus.metagame.solvers.limits import USEFUL
from ludus.metagame.solvers.nash import solve_matrix
from ludus.storage.stored_run import StoredRun, open_run

# --------------------------------------------------------------------------------------------------------------------
# How little exploitable the best mixture of each population is: one measure for methods whose meta-solvers differ.

_GAP = 1e-7
_MEASURE, _ADVICE = "population exploitability", "Use NashConv of a meta-strategy instead."


@dataclass(frozen=True, slots=True, eq=False)
class PopulationExploitability:
    """mixtures: [2] float64[n_p] over each population. guaranteed: float64[2], what they earn at least, whoever of the whole game they
    meet. nash_conv: of the mixtures together, the least that there is; half of it is their exploitability."""

    mixtures: tuple[NDArray[np.float64], ...]
    guaranteed: NDArray[np.float64]
    nash_conv: float


def population_exploitability(tree: GameTree, plans: Sequence[NDArray[np.float64]]) -> PopulationExploitability:
    """The mixtures of two players' populations in a zero-sum game that best responders of the whole game gain least against.

    plans: [2] float64[n_p, S_p], realisation plans of each player's policies. Each side is a matrix game that grows by best responses
    (double oracle; McMahan, Gordon and Blum 2003), solved to 1e-7 of the payoffs' range. The measure is the NashConv of the least
    exploitable mixture (McAleer et al. 2022, Anytime PSRO).

    Raises ScenarioError for games that are not zero-sum for two; DataError for an empty population; SolverError if rounding stops it.
    """
    require_two_player_zero_sum(tree.spec, _MEASURE, _ADVICE)
    for player, stack in enumerate(plans):
        if not len(stack):
            raise DataError(f"player {player}'s population is empty; add a policy to mix.")
    sides = [_least_exploitable(tree, player, np.atleast_2d(plans[player])) for player in range(2)]
    mixtures = tuple(mixture for mixture, _ in sides)
    mixed = [mixture @ stack for mixture, stack in zip(mixtures, plans, strict=True)]
    return PopulationExploitability(
        mixtures, np.array([value for _, value in sides]), tree.exploitability(mixed).nash_conv
    )


def _least_exploitable(tree: GameTree, player: int, own: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """(mixture, what it guarantees), by double oracle on the other's side: best responses of the whole game to a good mixture against
    those that there are, until no mixture can guarantee more. Where a linear program of the whole game has as many rows as the other
    has sequences, about as many responses suffice as there are policies.

    A mixture need only be so good that the bounds on the value come closer: half of what is between them is asked for. The interior
    point then answers with a central mixture, whose responses cut more off than a vertex's (on Leduc poker, 81 policies: 115 of them
    instead of 290)."""
    other = 1 - player
    trial = best = np.full(len(own), 1.0 / len(own))
    low, high, earned = -np.inf, np.inf, np.empty((len(own), 0))
    while True:
        plans: list[NDArray[np.float64] | None] = [None, None]
        plans[player] = trial @ own
        _, table = tree.best_response(other, plans)
        stacks = [own, own]
        stacks[other] = tree.realisation(other, table)[None]
        column = tree.payoffs_slice(other, stacks[other], stacks)[player].ravel()
        earned = np.column_stack([earned, column])
        if (guaranteed := float(trial @ column)) > low:
            low, best = guaranteed, trial
        high = min(high, float(column.max()))  # whatever the mixture, this response lets it earn no more
        allowed = _GAP * float(np.ptp(earned))
        if high - low <= allowed:
            return best, low
        wanted = max((high - low) / 2, allowed)
        answer = solve_matrix(earned, gap=wanted / 2)
        if answer.gap > wanted and high - low <= USEFUL * float(np.ptp(earned)):
            return best, low  # what it guarantees is known, and that another guarantees little more
        if answer.gap > wanted:
            raise SolverError(
                f"The mixtures of player {player}'s {len(own)} policies on {tree.spec.id} were to be solved to a gap of {wanted:.1e}, and "
                f"rounding stopped at {answer.gap:.1e}. Fewer policies may help."
            )
        trial, high = answer.row, min(high, float((earned @ answer.column).max()))


@dataclass(frozen=True, slots=True, eq=False)
class PopulationReport(RunResult):
    """names: [2] of each player's policies, in the order of `found.mixtures`. found: computed, not sampled."""

    names: tuple[tuple[str, ...], ...]
    found: PopulationExploitability

    @property
    def exploitability(self) -> float:
        """Half the NashConv of the least exploitable mixtures."""
        return self.found.nash_conv / 2


@standard_settings()
def evaluate_population(run_dir: Path | str, *, device: str = "auto") -> PopulationReport:
    """How exploitable the least exploitable mixture of each player's policies is. device: where that is computed, as `tree_on`
    takes it. Nothing is written.

    Raises RunError for an unreadable run; ScenarioError for a game without a tree, one that is not zero-sum for two, and policies with
    memory.
    """
    stored = open_run(run_dir)
    stored.require_everybody()
    env = stored.env.make(num_envs=1)
    spec, tree = env.spec, tree_of(env)
    env.close()
    require_two_player_zero_sum(spec, _MEASURE, _ADVICE)
    if tree is None:
        raise ScenarioError(
            f"{stored.env.id} is not compiled into a tree, so the best mixture of policies cannot be computed. Approximate it: "
            "`ludus evaluate RUN --population --exploit EPISODES`, or ludus.exploit_population."
        )
    found = population_exploitability(tree_on(tree, device), stored_plans(stored, tree))
    names = tuple(tuple(stored.names(player)) for player in range(tree.num_players))
    return PopulationReport(*facts_of(stored), names, found)


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
            f"policy {ref.policy!r} of {str(stored.folder)!r} goes by more than the information state (a bot, or one with memory), so "
            f"what it does on {tree.spec.id} can be played, not computed. Add `--exploit EPISODES`, or call ludus.exploit_population."
        )
    return tree.realisation(player, table)
