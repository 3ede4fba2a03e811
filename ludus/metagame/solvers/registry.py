"""The meta-solvers by name, and asking one, whoever wrote it."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ludus.core.errors import SolverError
from ludus.core.parts import Registry
from ludus.core.types import MetaSolution
from ludus.core.user_code import qualified_name, short_repr, wrong_distribution, wrong_state
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.base import MetaSolver

META_SOLVERS: Final = Registry(
    "meta-solver",
    "ludus.meta_solvers",
    {
        "alpha_rank": "ludus.metagame.solvers.alpha_rank:AlphaRank",
        "cce": "ludus.metagame.solvers.correlated:CoarseCorrelated",
        "ce": "ludus.metagame.solvers.correlated:Correlated",
        "fictitious_play": "ludus.metagame.solvers.fictitious_play:FictitiousPlay",
        "last": "ludus.metagame.solvers.fixed:Last",
        "last_k": "ludus.metagame.solvers.fixed:LastK",
        "logit": "ludus.metagame.solvers.logit:Logit",
        "max_entropy_nash": "ludus.metagame.solvers.max_entropy_nash:MaxEntropyNash",
        "nash": "ludus.metagame.solvers.nash:Nash",
        "nash_bargaining": "ludus.metagame.solvers.nash_bargaining:NashBargaining",
        "nash_bimatrix": "ludus.metagame.solvers.nash_bimatrix:NashBimatrix",
        "pfsp": "ludus.metagame.solvers.pfsp:PFSPSolver",
        "projected_replicator_dynamics": "ludus.metagame.solvers.projected_replicator_dynamics:ProjectedReplicatorDynamics",
        "rating_softmax": "ludus.metagame.solvers.rating_softmax:RatingSoftmax",
        "rectified_nash": "ludus.metagame.solvers.nash:RectifiedNash",
        "regret_matching": "ludus.metagame.solvers.regret_matching:RegretMatching",
        "regret_matching_plus": "ludus.metagame.solvers.regret_matching:RegretMatchingPlus",
        "uniform": "ludus.metagame.solvers.fixed:Uniform",
    },
)
"""name -> `module:Class`; each class has `needs`, and its fields are its options. Installed distributions add to them by entry points."""


def solve(solver: MetaSolver, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
    """Return what the solver answers, which a run can go on with. Raises SolverError, as it does or for an answer that is no distribution
    over the policies there are."""
    solution = solver.solve(payoffs, warm=warm, rng=rng)
    if wrong := solution_error(solution, payoffs):
        raise SolverError(f"meta-solver {qualified_name(solver)} answered {wrong}.")
    return solution


def solution_error(solution: Any, payoffs: Payoffs) -> str:
    """Return what keeps it from being a solution over the policies there are, as the end of a sentence; "" if nothing does."""
    if not isinstance(solution, MetaSolution):
        return f"{short_repr(solution)}; expected a MetaSolution of ludus.core.types"
    marginals, joint = solution.marginals, solution.joint
    if (marginals is None) == (joint is None):
        return f"{'neither' if joint is None else 'both'} of marginals and joint; expected one of them"
    if not isinstance(solution.gap, int | float | np.number) or not (math.isnan(solution.gap) or solution.gap >= 0.0):
        return f"the gap {short_repr(solution.gap)}; expected a number >= 0, or NaN where nothing is promised"
    if wrong := wrong_state("warm", solution.warm):
        return wrong
    if joint is not None:
        wrong = wrong_distribution(joint, payoffs.sizes)
        return wrong and f"for joint {wrong}"
    if not isinstance(marginals, tuple | list) or len(marginals) != payoffs.num_players:
        return f"the marginals {short_repr(marginals)}; expected one array for each of {payoffs.num_players} players"
    for player, (probs, size) in enumerate(zip(marginals, payoffs.sizes, strict=True)):
        if wrong := wrong_distribution(probs, (size,)):
            return f"for player {player} {wrong}"
    return ""
