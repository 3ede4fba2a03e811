"""The meta-solvers by name."""

from __future__ import annotations

from typing import Final

META_SOLVERS: Final[dict[str, str]] = {
    "alpha_rank": "ludus.solvers.alpha_rank:AlphaRank",
    "cce": "ludus.solvers.correlated:CoarseCorrelated",
    "ce": "ludus.solvers.correlated:Correlated",
    "fictitious_play": "ludus.solvers.fictitious_play:FictitiousPlay",
    "last": "ludus.solvers.fixed:Last",
    "last_k": "ludus.solvers.fixed:LastK",
    "logit": "ludus.solvers.logit:Logit",
    "max_entropy_nash": "ludus.solvers.max_entropy_nash:MaxEntropyNash",
    "nash": "ludus.solvers.nash:Nash",
    "nash_bargaining": "ludus.solvers.nash_bargaining:NashBargaining",
    "nash_bimatrix": "ludus.solvers.nash_bimatrix:NashBimatrix",
    "pfsp": "ludus.solvers.pfsp:PFSPSolver",
    "projected_replicator_dynamics": "ludus.solvers.projected_replicator_dynamics:ProjectedReplicatorDynamics",
    "rating_softmax": "ludus.solvers.rating_softmax:RatingSoftmax",
    "rectified_nash": "ludus.solvers.nash:RectifiedNash",
    "regret_matching": "ludus.solvers.regret_matching:RegretMatching",
    "regret_matching_plus": "ludus.solvers.regret_matching:RegretMatchingPlus",
    "uniform": "ludus.solvers.fixed:Uniform",
}
"""name -> `module:Class`; each class has `needs`, and its fields are its options."""
