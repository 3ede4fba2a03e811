"""Choice of the learner of MMD or R-NaD: of a table, or of a network, by CPU kernels or by autograd."""

from __future__ import annotations

from ludus.algorithms.common.base import Learner, LearnerContext
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.mmd.models import KernelMMD, TorchMMD
from ludus.algorithms.mmd.tabular_learner import TabularMMDLearner
from ludus.algorithms.on_policy.kernels import kernel_placement
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.core.types import Weights


def make_learner(config: MMD, context: LearnerContext, start: Weights | None = None) -> Learner:
    """Make the learner.

    Args:
        config: With network "table", or "mlp".
        context: What it learns in, and on which device: CPU kernels run on CPUs only.
        start: Weights to start from; None: fresh ones.
    """
    if config.network == "table":
        return TabularMMDLearner(config, context, start)
    placement = kernel_placement(config, config.plain_policy(context.env, context.seats), context)
    if placement.written:
        return OnPolicyLearner(config, KernelMMD(config, context, start, placement), context)
    return OnPolicyLearner(config, TorchMMD(config, context, start), context)
