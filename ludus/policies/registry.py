"""Kinds of policies by name."""

from __future__ import annotations

from ludus.core.errors import PolicyError
from ludus.core.parts import load
from ludus.core.types import PolicySpec, Weights
from ludus.policies.base import Policy

POLICIES = {
    "averaged": "ludus.policies.two_policies:AveragedPolicy",
    "actor_critic": "ludus.policies.actor_critic_policy:ActorCriticPolicy",
    "actor_critic_team": "ludus.policies.actor_critic_team:ActorCriticTeam",
    "deterministic": "ludus.policies.actors:DeterministicActor",
    "mlp": "ludus.policies.network:MLPPolicy",
    "q_module": "ludus.policies.q_module:QModulePolicy",
    "nfsp": "ludus.policies.two_policies:NFSPPolicy",
    "q_network": "ludus.policies.q_network:QPolicy",
    "q_recurrent": "ludus.policies.q_module:QRecurrentPolicy",
    "random": "ludus.policies.random:RandomPolicy",
    "squashed_gaussian": "ludus.policies.actors:SquashedGaussianActor",
    "tabular": "ludus.policies.tabular:TabularPolicy",
    "torch": "ludus.policies.torch_module:TorchPolicy",
}

_WHOLE: set[type] = set()  # classes whose policies keep the contract: to look costs as much as to build a small policy


def build_policy(spec: PolicySpec, weights: Weights) -> Policy:
    """The policy that `spec` describes, around `weights` (copied): `Class(spec, weights)`.

    Raises UnknownName for a kind that nobody registered, PolicyError if spec and weights do not fit each other.
    """
    kind = load("policy", spec.kind, POLICIES)
    if not (isinstance(kind, type) and callable(getattr(kind, "act", None))):
        raise PolicyError(
            f"policy kind {spec.kind!r} is not a class with a method `act`; see ludus.policies.base.Policy."
        )
    policy: Policy = kind(spec, weights)
    if kind not in _WHOLE:
        if not isinstance(policy, Policy):
            raise PolicyError(f"policy kind {spec.kind!r} lacks a part of the contract in ludus.policies.base.Policy.")
        _WHOLE.add(kind)
    return policy
