"""OpenSpiel's own psro_v2 on Leduc poker: exact best responses, exact payoffs, its LP meta-solver.

Everything that decides the speed is OpenSpiel's code as it stands: the policy aggregator, the best-response oracle and
the LP of cvxpy and ECOS. The oracle's Python backend is the default: 4 % faster here than its C++ one, since most of the
time goes into asking every policy at every node of the tree. Only two things are ours, both in its favour: payoffs are
exact and nearly free (it would simulate episodes, and OpenSpiel's Python recursion for exact values takes longer than all
the rest), and its clock stands still while NashConv is judged.

    python -m benchmarks.peers.psro_v2_exact.run --target 0.36
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python import policy as policy_lib
from open_spiel.python.algorithms import best_response
from open_spiel.python.algorithms.psro_v2 import best_response_oracle, psro_v2

from benchmarks.lines import Lines
from benchmarks.peers.exact_psro import ExactPayoffs, judge
from benchmarks.peers.sequence_form import Floats, SequenceForm


def plan_of(form: SequenceForm, player: int, policy: policy_lib.Policy) -> Floats:
    """The realisation plan of a policy that this run's oracle or initialisation made."""
    if isinstance(policy, best_response.CPPBestResponsePolicy):
        return form.pure(player, policy.tabular_best_response_map)
    if isinstance(policy, best_response.BestResponsePolicy):
        return form.pure(player, {key: policy.best_response_action(key) for key in form.players[player].key})
    assert isinstance(policy, policy_lib.UniformRandomPolicy)
    return form.uniform(player)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.36, help="stop when NashConv is at most this")
    parser.add_argument("--max-seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("cpp", "py"), default="py", help="of the best-response oracle")
    args = parser.parse_args(argv)

    lines = Lines(["open-spiel", "cvxpy", "ecos", "numpy", "scipy"])
    np.random.seed(args.seed)  # noqa: NPY002 (psro_v2 draws from the global generator)
    game = pyspiel.load_game("leduc_poker")
    form = SequenceForm(game)
    payoffs = ExactPayoffs(form, plan_of)

    class Solver(psro_v2.PSROSolver):
        def sample_episodes(self, policies: list[policy_lib.Policy], num_episodes: int) -> NDArray[np.float64]:
            return payoffs(policies)

    solver = Solver(
        game,
        best_response_oracle.BestResponseOracle(best_response_backend=args.backend, game=game),
        sims_per_entry=1,
        meta_strategy_method="nash",
        training_strategy_selector="probabilistic",
        sample_from_marginals=True,
    )
    judge(solver=solver, payoffs=payoffs, lines=lines, target=args.target, max_seconds=args.max_seconds)


if __name__ == "__main__":
    main()
