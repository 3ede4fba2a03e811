"""Learners of self-play in imperfect-information games come near an equilibrium, through whole runs. MMD's table is among the gates."""

import pytest

import ludus
from ludus.runs.scenario import SelfPlay

pytestmark = pytest.mark.slow
LEDUC, KUHN = "openspiel/leduc_poker", "openspiel/kuhn_poker"


def exploitability(folder, *, env, algorithm, generations, episodes):
    """NashConv / 2 of the announced policies, before the first generation and after each."""
    scenario = SelfPlay(
        env={"id": env, "num_envs": 250}, algorithm=algorithm, generations=generations, response={"episodes": episodes}
    )
    return [x / 2 for x in ludus.run(scenario, run_dir=folder, report=False).nash_conv]


CASES = {
    "mmd": ({"kind": "mmd", "eta": 1.0}, 1.4),  # 1.22 under rounding noise
    "rnad": ({"kind": "rnad"}, 1.0),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in CASES])
def test_exploitability_falls_on_leduc(name, tmp_path):
    """From 2.37, the uniform policy's, within 200,000 episodes."""
    algorithm, most = CASES[name]
    found = exploitability(tmp_path, env=LEDUC, algorithm=algorithm, generations=2, episodes=50_000)
    assert found[0] == pytest.approx(4.7472 / 2, abs=1e-3)
    assert found[-1] <= most


def test_exploitability_of_nfsp_falls_on_kuhn(tmp_path):
    """From 11/24, the uniform policy's."""
    response = {"rollout": 250, "hidden": (32,), "batch": 128, "epsilon": 0.06, "learning_rate": 3e-3}
    algorithm = {"kind": "nfsp", "hidden": (32,), "batch": 512, "best_response": response, "learning_rate": 3e-3}
    found = exploitability(tmp_path, env=KUHN, algorithm=algorithm, generations=3, episodes=10_000)
    assert found[0] == pytest.approx(11 / 24)
    assert found[-1] <= 0.27
