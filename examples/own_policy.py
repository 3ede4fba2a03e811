"""A policy of your own: a trembling hand (Selten 1975), which plays any legal action with a small chance while it explores; trained as A2C.

PYTHONPATH=examples ludus train kuhn 'algorithm={kind: own_policy:TremblingA2C, tremble: 0.1}'
"""

from dataclasses import replace

from a2c import A2C

from ludus.policies.categorical import CategoricalPolicy, epsilon_mix
from ludus.policies.torch_module import TorchPolicy


class Trembling(CategoricalPolicy):
    def __init__(self, spec, weights):
        self.spec, self.actions = spec, spec.config["actions"]
        self.tremble = spec.config["options"]["tremble"]
        self.inner = TorchPolicy(spec, weights)

    def probabilities(self, observation, mask, *, mode):
        probs, extras = self.inner.probabilities(observation, mask, mode=mode)
        return (epsilon_mix(probs, mask, self.tremble) if mode == "explore" else probs), extras

    def weights(self):
        return self.inner.weights()


class TremblingA2C(A2C):
    tremble: float = 0.05

    def policy(self, env, seats):
        return replace(super().policy(env, seats), kind="own_policy:Trembling")
