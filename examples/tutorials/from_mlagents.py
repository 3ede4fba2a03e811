"""From ML-Agents to Ludus: a trainer configuration with self-play, and the scenario that it becomes.

python examples/tutorials/from_mlagents.py                        # the game of own_game.py, some seconds; writes from_mlagents.svg
python examples/tutorials/from_mlagents.py builds/Tennis          # your build, with Unity's Python package
"""

from __future__ import annotations

import sys
from typing import Any

import figures
import numpy as np
import own_game
import yaml

import ludus

# Unity's own examples have max_steps: 50000000, and a buffer of 20480.
CONFIG = """
behaviors:
  Tennis:
    trainer_type: ppo
    hyperparameters:
      batch_size: 256
      buffer_size: 2048
      learning_rate: 0.0003
      beta: 0.005
      epsilon: 0.2
      lambd: 0.95
      num_epoch: 3
      learning_rate_schedule: constant
    network_settings: {normalize: true, hidden_units: 256, num_layers: 2}
    reward_signals: {extrinsic: {gamma: 0.99}}
    max_steps: 60000
    self_play: {save_steps: 12000, window: 10, play_against_latest_model_ratio: 0.5}
"""


def scenario(behavior: dict[str, Any], env: Any) -> ludus.Scenario:
    options, network = behavior["hyperparameters"], behavior["network_settings"]
    self_play = behavior["self_play"]
    rate = options["learning_rate"]
    algorithm = {"ppo": ludus.PPO, "poca": ludus.MAPPO}[behavior["trainer_type"]]
    return ludus.SelfPlay(
        env=env,
        algorithm=algorithm(
            batch=options["buffer_size"],
            batch_unit="decisions",
            minibatches=options["buffer_size"] // options["batch_size"],
            epochs=options["num_epoch"],
            learning_rate={"start": rate, "end": 0.0} if options["learning_rate_schedule"] == "linear" else rate,
            entropy=options["beta"],
            clip=options["epsilon"],
            gae_lambda=options["lambd"],
            gamma=behavior["reward_signals"]["extrinsic"]["gamma"],
            hidden=(network["hidden_units"],) * network["num_layers"],
            normalise_observations=network["normalize"],
        ),
        latest=self_play["play_against_latest_model_ratio"],
        past={"kind": "uniform", "last": self_play["window"]},
        share="always",  # a behaviour is one network for all teams
        generations=behavior["max_steps"] // self_play["save_steps"],  # a snapshot each
        response={"decisions": self_play["save_steps"]},
        cells="all",  # all snapshots play each other,
        evaluation={"episodes": 100},  # so often in each seat
        mode="explore",
        name="from-mlagents",
    )


def main(picture: str = "from_mlagents.svg", build: str = "") -> None:
    behavior = yaml.safe_load(CONFIG)["behaviors"]["Tennis"]
    env = {"id": f"mlagents/{build}", "num_envs": 4, "restarts": 5} if build else own_game.ENV
    result = ludus.run(scenario(behavior, env))
    names = [record.ref.policy for record in result.populations[0]]
    payoff = (result.payoffs.mean[0] + result.payoffs.mean[1].T) / 2  # over both seats
    print("the last snapshot against all:", np.round(payoff[-1], 2))
    title = "Mean return of the row's snapshot against the column's"
    figures.heat_map(picture, title, rows=names, columns=names, values=payoff)


if __name__ == "__main__":
    main(build=sys.argv[1] if len(sys.argv) > 1 else "")
