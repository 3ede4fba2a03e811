"""OpenSpiel's own psro_v2 on Leduc poker with its PyTorch DQN as the oracle, tuned; exact payoffs, its LP meta-solver.

The loop, the oracle and the agent are OpenSpiel's. Ours, all in its favour: payoffs are exact and nearly free; each new
agent has a seed of its own (OpenSpiel's would otherwise all start from the same weights); the clock stands still while
NashConv is judged; and the settings below, the best of those tried (see ../README.md).

    python -m benchmarks.peers.psro_v2_dqn.run --target 1.7 --seed 0
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Sequence

import numpy as np
import pyspiel
import torch
from numpy.typing import NDArray
from open_spiel.python import policy as policy_lib
from open_spiel.python import rl_environment
from open_spiel.python.algorithms.psro_v2 import psro_v2, rl_oracle
from open_spiel.python.pytorch import dqn

from benchmarks.lines import Lines
from benchmarks.peers.exact_psro import ExactPayoffs, judge
from benchmarks.peers.sequence_form import Floats, SequenceForm


def policy_factory() -> types.ModuleType:
    """psro_v2's rl_policy module without JAX: it imports two JAX agents that its factory for other agents never uses."""
    for name in ("dqn", "policy_gradient"):
        stub = types.ModuleType(f"open_spiel.python.jax.{name}")
        stub.DQN = stub.PolicyGradient = object  # type: ignore[attr-defined]
        sys.modules.setdefault(stub.__name__, stub)
    package = sys.modules.setdefault("open_spiel.python.jax", types.ModuleType("open_spiel.python.jax"))
    package.dqn = sys.modules["open_spiel.python.jax.dqn"]  # type: ignore[attr-defined]
    package.policy_gradient = sys.modules["open_spiel.python.jax.policy_gradient"]  # type: ignore[attr-defined]
    from open_spiel.python.algorithms.psro_v2 import rl_policy

    return rl_policy


class SeededDQN(dqn.DQN):
    """DQN whose n-th instance has its own seed; otherwise every new agent would start from the same weights."""

    next_seed = 0

    def __init__(self, player_id: int, **settings: object) -> None:
        SeededDQN.next_seed += 1
        super().__init__(player_id, seed=SeededDQN.next_seed, **settings)
        self._kwargs = {"player_id": player_id, **settings}  # what psro_v2 builds the next agent from


class GreedyPlans:
    """Realisation plans of DQN policies: one forward pass over all information states of the player."""

    def __init__(self, game: pyspiel.Game) -> None:
        self._tensors: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
        self._walk(game.new_initial_state())

    def _walk(self, state: pyspiel.State) -> None:
        if state.is_terminal():
            return
        if not state.is_chance_node():
            player = state.current_player()
            self._tensors[player].setdefault(state.information_state_string(), state.information_state_tensor())
        for action in state.legal_actions():
            self._walk(state.child(action))

    @torch.inference_mode()
    def __call__(self, form: SequenceForm, player: int, policy: policy_lib.Policy) -> Floats:
        if isinstance(policy, policy_lib.UniformRandomPolicy):
            return form.uniform(player)
        own = form.players[player]
        inputs = torch.tensor([self._tensors[player][key] for key in own.key], dtype=torch.float32)
        values = policy._policy._q_network(inputs).tolist()
        best = {
            key: max(actions, key=row.__getitem__)
            for key, actions, row in zip(own.key, own.actions, values, strict=True)
        }
        return form.pure(player, best)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=1.7, help="stop when NashConv is at most this")
    parser.add_argument("--max-seconds", type=float, default=400.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=2000, help="training episodes per new policy")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learn-every", type=int, default=10)
    parser.add_argument("--target-every", type=int, default=100)
    parser.add_argument("--epsilon-steps", type=int, default=3000)
    parser.add_argument("--epsilon-end", type=float, default=0.05)
    args = parser.parse_args(argv)

    torch.set_num_threads(1)
    dqn_policy = policy_factory().rl_policy_factory(SeededDQN)
    lines = Lines(["open-spiel", "torch", "cvxpy", "ecos", "numpy", "scipy"])
    np.random.seed(args.seed)  # noqa: NPY002 (psro_v2 and DQN draw from the global generator)
    SeededDQN.next_seed = 1_000_000 * args.seed
    game = pyspiel.load_game("leduc_poker")
    env = rl_environment.Environment(game)
    settings = {
        "state_representation_size": env.observation_spec()["info_state"][0],
        "num_actions": env.action_spec()["num_actions"],
        "hidden_layers_sizes": [128, 128],
        "optimizer_str": "adam",
        "learning_rate": args.learning_rate,
        "batch_size": args.batch_size,
        "learn_every": args.learn_every,
        "update_target_network_every": args.target_every,
        "replay_buffer_capacity": 50_000,
        "min_buffer_size_to_learn": args.batch_size,
        "epsilon_start": 1.0,
        "epsilon_end": args.epsilon_end,
        "epsilon_decay_duration": args.epsilon_steps,
        "epsilon_decay_schedule_str": "linear",
    }
    payoffs = ExactPayoffs(SequenceForm(game), GreedyPlans(game))
    first = [dqn_policy(env, player, **settings) for player in (0, 1)]
    for policy in first:
        policy.freeze()

    class Solver(psro_v2.PSROSolver):
        def sample_episodes(self, policies: list[policy_lib.Policy], num_episodes: int) -> NDArray[np.float64]:
            return payoffs(policies)

    solver = Solver(
        game,
        rl_oracle.RLOracle(env, dqn_policy, settings, number_training_episodes=args.episodes),
        initial_policies=first,
        sims_per_entry=1,
        meta_strategy_method="nash",
        training_strategy_selector="probabilistic",
        sample_from_marginals=True,
    )
    judge(solver=solver, payoffs=payoffs, lines=lines, target=args.target, max_seconds=args.max_seconds)


if __name__ == "__main__":
    main()
