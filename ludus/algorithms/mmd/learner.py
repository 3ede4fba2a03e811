"""Which learner a configuration of MMD or R-NaD has: of a table, or of a network, by passes that are written out or by autograd."""

from __future__ import annotations

from ludus.algorithms.common.base import Learner, LearnerContext
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.mmd.models import AutogradMMD, WrittenMMD
from ludus.algorithms.mmd.tabular_learner import TabularMMDLearner
from ludus.algorithms.on_policy.kernels import written_placement
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.core.types import Weights


def make_learner(config: MMD, context: LearnerContext, start: Weights | None = None) -> Learner:
    """Make it.

    Args:
        config: With network "table", or "mlp".
        context: What it learns in, and on which device: passes are written out for CPUs.
        start: Weights to start from; fresh ones without.
    """
    if config.network == "table":
        return TabularMMDLearner(config, context, start)
    placement = written_placement(config, config.plain_policy(context.env, context.seats), context)
    if placement.written:
        return OnPolicyLearner(config, WrittenMMD(config, context, start, placement), context)
    return OnPolicyLearner(config, AutogradMMD(config, context, start), context)
