"""`penalised_ppo`: PPO's probability ratio without its clip, held back by a penalty on the KL divergence (Schulman et al. 2017)."""

from ludus.algorithms.on_policy.config import PolicyGradient


class PenalisedPPO(PolicyGradient):
    penalty: float = 1.0
    epochs: int = 4

    def surrogate(self, logp, batch):
        difference = logp - batch.logp
        kl = difference.exp() - 1 - difference
        return self.penalty * kl - difference.exp() * batch.advantage
