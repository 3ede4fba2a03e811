"""Advantage actor-critic with a critic of its own (Mnih et al. 2016).

PYTHONPATH=examples ludus train kuhn algorithm=a2c:A2C
"""

from torch import nn

from ludus.algorithms.common.losses import entropy, log_prob, policy_gradient, value_loss
from ludus.algorithms.on_policy.config import OnPolicy


class A2C(OnPolicy):
    hidden: int = 64
    bonus: float = 0.01

    def networks(self, inputs, actions):
        return {
            "policy": nn.Sequential(nn.Linear(inputs, self.hidden), nn.Tanh(), nn.Linear(self.hidden, actions)),
            "critic": nn.Sequential(nn.Linear(inputs, 2 * self.hidden), nn.ReLU(), nn.Linear(2 * self.hidden, 1)),
        }

    def loss(self, networks, batch):
        logits, value = networks["policy"](batch.x), networks["critic"](batch.x)[:, 0]
        actor = policy_gradient(log_prob(logits, batch.action, batch.mask), batch.advantage)
        return (actor + value_loss(value, batch.target) - self.bonus * entropy(logits, batch.mask)).mean()
