"""The meta-solvers by name."""

from __future__ import annotations

from typing import Final

META_SOLVERS: Final[dict[str, str]] = {
    "alpha_rank": "ludus.meta_solvers.alpha_rank:AlphaRank",
    "cce": "ludus.meta_solvers.correlated:CoarseCorrelated",
    "ce": "ludus.meta_solvers.correlated:Correlated",
    "fictitious_play": "ludus.meta_solvers.fictitious_play:FictitiousPlay",
    "last": "ludus.meta_solvers.last:Last",
    "last_k": "ludus.meta_solvers.last_k:LastK",
    "logit": "ludus.meta_solvers.logit:Logit",
    "max_entropy_nash": "ludus.meta_solvers.max_entropy_nash:MaxEntropyNash",
    "nash": "ludus.meta_solvers.nash:Nash",
    "nash_bargaining": "ludus.meta_solvers.nash_bargaining:NashBargaining",
    "nash_bimatrix": "ludus.meta_solvers.nash_bimatrix:NashBimatrix",
    "pfsp": "ludus.meta_solvers.pfsp:PFSP",
    "projected_replicator_dynamics": "ludus.meta_solvers.projected_replicator_dynamics:ProjectedReplicatorDynamics",
    "rating_softmax": "ludus.meta_solvers.rating_softmax:RatingSoftmax",
    "rectified_nash": "ludus.meta_solvers.rectified_nash:RectifiedNash",
    "regret_matching": "ludus.meta_solvers.regret_matching:RegretMatching",
    "regret_matching_plus": "ludus.meta_solvers.regret_matching:RegretMatchingPlus",
    "uniform": "ludus.meta_solvers.uniform:Uniform",
}
"""name -> `module:Class`; each class has `needs`, and its fields are its options."""
