"""AlphaZero in miniature, and rollouts of tic-tac-toe by its search."""

from functools import lru_cache

import numpy as np

from ludus.algorithms.alphazero.config import AlphaZero
from ludus.core.types import Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

GAME = "openspiel/tic_tac_toe"
MINE = PolicyRef(0, "mine", None, "self_play")


def small(**options):
    given = {"simulations": 8, "hidden": (8,), "rollout": 6, "min_size": 30, "batch": 16, "updates_per_decision": 0.1}
    return AlphaZero(**{**given, **options})


@lru_cache(maxsize=1)
def worker():
    env = make_env(GAME, num_envs=6, tree="off")
    return RolloutWorker(env, LocalBank(env.spec, 6))


def spec():
    return worker().env.spec


def played(learner, number, episodes=6):
    """Whole games of a learner against itself, both sides recorded, with what its searches found."""
    request = RolloutRequest(
        learner=MINE._replace(mode="explore"),
        seats=(0, 1),
        opponents=Mixture(()),
        unit="episodes",
        amount=episodes,
        seed=number,
        extras=learner.config.collect().extras,
        together=True,
        modes=(("self_play", 1.0),),
    )
    policy = build_policy(learner.spec, learner.weights())
    rollout = worker().play(request, [(request.learner, policy), (MINE, policy)])
    assert rollout.trajectories is not None
    return rollout.trajectories


def outcomes(rows):
    """Each decision's final reward of its own player."""
    return np.repeat(np.add.reduceat(rows.reward, rows.start[:-1]), np.diff(rows.start))
