"""A loss of your own: PPO's probability ratio without its clip (Schulman et al. 2017), held back by a penalty on the KL divergence.

PYTHONPATH=examples ludus train kuhn 'algorithm={kind: own_loss:PenalisedPPO, penalty: 0.5}'
"""

from ludus.algorithms.on_policy.config import PolicyGradient


class PenalisedPPO(PolicyGradient):
    penalty: float = 1.0
    epochs: int = 4

    def surrogate(self, logp, batch):
        difference = logp - batch.logp
        kl = difference.exp() - 1 - difference  # of this row, never below 0 (Schulman 2020)
        return self.penalty * kl - difference.exp() * batch.advantage
