"""From MALib to Ludus: MALib's PSRO with DQN on Kuhn poker, and an experiment file of Light-MALib.

python examples/tutorials/from_malib.py     # some seconds; writes from_malib.svg
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import figures

import ludus
from ludus.contrib.malib import read_expr

ITERATIONS = 6  # 50 for the long form
EPISODES = 2_000

EXPR = """
expr_name: kuhn_dqn
framework:
  name: psro
  max_rounds: 6
  meta_solver: nash
  stopper: {type: win_rate_stopper, kwargs: {min_win_rate: 1.1, max_steps: 20}}
agent_manager: {num_agents: 2, share_policies: false}
evaluation_manager: {num_eval_rollouts: 100}
rollout_manager:
  batch_size: 100
  worker: {envs: [{cls: kuhn_poker}]}
training_manager:
  batch_size: 64
  trainer: {actor_lr: 1e-3}
data_server: {table_cfg: {capacity: 10000}}
populations:
  - population_id: default
    algorithm:
      name: DQN
      model_config:
        critic: {layers: [{units: 64, activation: ReLU}, {units: 64, activation: ReLU}]}
      custom_config:
        explore_cfg: {max_epsilon: 1.0, min_epsilon: 0.1}
        gamma: 0.99
        target_update_freq: 100
"""


def malib() -> ludus.Scenario:
    """What MALib's PSROScenario says, as a scenario of Ludus."""
    return ludus.PSRO(
        env="openspiel/kuhn_poker",
        algorithm=ludus.DQN(),
        meta_solver="nash",
        generations=ITERATIONS,
        response={"episodes": EPISODES},
        name="from-malib",
    )


def light_malib(folder: Path) -> ludus.Scenario:
    """What an experiment file of Light-MALib says."""
    (folder / "expr.yaml").write_text(EXPR, encoding="utf-8")
    imported = read_expr(folder / "expr.yaml")
    (folder / "my.yaml").write_text(imported.as_yaml(), encoding="utf-8")
    print(imported.as_yaml())
    return ludus.load_scenario(str(folder / "my.yaml"))


def main(picture: str = "from_malib.svg") -> None:
    with tempfile.TemporaryDirectory() as folder:
        scenarios = {"from MALib": malib(), "from Light-MALib": light_malib(Path(folder))}
    curves = {name: ludus.run(scenario).nash_conv for name, scenario in scenarios.items()}
    for name, curve in curves.items():
        print(f"{name}: NashConv {curve[0]:.2f} -> {curve[-1]:.2f}")
    figures.lines(picture, "PSRO with DQN on Kuhn poker", x="generation", y="NashConv", curves=curves)


if __name__ == "__main__":
    main()
