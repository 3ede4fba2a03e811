"""The meta-solvers by name."""

from __future__ import annotations

from typing import Final

META_SOLVERS: Final[dict[str, str]] = {
    "fictitious_play": "ludus.meta_solvers.fictitious_play:FictitiousPlay",
    "last": "ludus.meta_solvers.last:Last",
    "nash": "ludus.meta_solvers.nash:Nash",
    "projected_replicator_dynamics": "ludus.meta_solvers.projected_replicator_dynamics:ProjectedReplicatorDynamics",
    "regret_matching": "ludus.meta_solvers.regret_matching:RegretMatching",
    "regret_matching_plus": "ludus.meta_solvers.regret_matching:RegretMatchingPlus",
    "uniform": "ludus.meta_solvers.uniform:Uniform",
}
"""name -> `module:Class`; each class has `needs`, and its fields are its options."""
