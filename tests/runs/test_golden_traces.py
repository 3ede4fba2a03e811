"""Seeded runs with their numbers written down, so that a change of behaviour is noticed, whatever it was meant to be.

A change that is meant (another default, a better start, another order of draws) changes the numbers here in the same commit, and says
why. Sampled runs agree to 1e-5 across CPUs, not to the bit: their matrix products round differently.
"""

from __future__ import annotations

from fractions import Fraction as F
from pathlib import Path

import numpy as np

from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario

EXACT = """
env: openspiel/kuhn_poker
algorithm: exact
meta_solver: {kind: nash, method: highs}
generations: 6
"""


def test_exact_psro_on_kuhn(tmp_path: Path) -> None:
    """Double oracle from uniform play, with the vertices that HiGHS finds: every number is a fraction of small integers. Equal actions go
    to the lowest, so that the sixth responses complete an equilibrium."""
    result = run(parse_scenario(EXACT), run_dir=tmp_path, report=False)
    nash_conv = [F(11, 12), F(5, 6), F(1, 3), F(11, 60), F(2, 9), F(13, 96), 0]
    np.testing.assert_allclose(result.nash_conv, [float(x) for x in nash_conv], atol=1e-9)
    values = [F(1, 8), F(-1, 6), 0, F(1, 30), F(1, 72), F(-5, 96), F(-1, 18)]
    np.testing.assert_allclose([g.values[0] for g in result.generations], [float(x) for x in values], atol=1e-9)
    rows, columns = result.meta_strategies
    np.testing.assert_allclose(rows, [0, 0, 7 / 15, 2 / 5, 0, 0, 2 / 15], atol=1e-9)
    np.testing.assert_allclose(columns, [0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3], atol=1e-9)
    first_column = [1 / 8, 1 / 2, 1 / 6, 0, 1 / 3, 1 / 6, 1 / 6]
    np.testing.assert_allclose(result.payoffs.mean[0][:, 0], first_column, atol=1e-12)
    assert result.episodes == 0


PPO = """
env: {id: openspiel/kuhn_poker, num_envs: 32}
algorithm: {kind: ppo, batch: 64, epochs: 3, minibatches: 2, hidden: [16], learning_rate: {start: 0.01, end: 0.001}}
response: {episodes: 512}
warm_start: {source: last}
mode: explore
generations: 4
"""


def test_ppo_psro_on_kuhn(tmp_path: Path) -> None:
    """Everything that is random at once: initial weights, environments, opponents, actions, minibatches. Played as it learned
    (mode: explore), so that the numbers move with the weights and do not jump."""
    result = run(parse_scenario(PPO), run_dir=tmp_path, report=False)
    np.testing.assert_allclose(result.nash_conv, [11 / 12, 0.627430, 0.424461, 0.270070, 0.268662], atol=1e-5)
    responses = [g.responses for g in result.generations[1:]]
    wanted = [[0.433262, 0.231090], [0.002317, 0.230346], [-0.058748, 0.299844], [0.016432, 0.106113]]
    np.testing.assert_allclose(responses, wanted, atol=1e-5)
    assert result.episodes == 4 * 2 * 512
