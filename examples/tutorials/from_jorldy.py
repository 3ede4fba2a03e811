"""From JORLDY to Ludus: a configuration module, and the scenario that it becomes.

python examples/tutorials/from_jorldy.py     # some seconds; writes from_jorldy.svg
"""

from __future__ import annotations

from types import SimpleNamespace

import figures
import numpy as np

import ludus

STEPS = 9_000  # JORLDY's configuration has 100,000
SNAPSHOTS = 6

# A configuration of JORLDY has four dictionaries: config/dqn/cartpole.py, with the numbers that matter.
config = SimpleNamespace(
    env={"name": "cartpole", "action_type": "discrete", "render": False},
    agent={
        "name": "dqn",
        "gamma": 0.99,
        "epsilon_init": 1.0,
        "epsilon_min": 0.01,
        "explore_ratio": 0.2,
        "buffer_size": 50_000,
        "batch_size": 32,
        "start_train_step": 1_000,
        "target_update_period": 500,
        "lr_decay": True,
    },
    optim={"name": "adam", "lr": 5e-4},
    train={"run_step": STEPS, "eval_iteration": 10},
)


def with_ludus() -> ludus.Scenario:
    agent, train = config.agent, config.train
    return ludus.FixedOpponents(  # plain reinforcement learning: CartPole has one player
        env={"id": "gymnasium/CartPole-v1", "num_envs": 1},
        algorithm=ludus.DQN(
            gamma=agent["gamma"],
            epsilon={"start": agent["epsilon_init"], "end": agent["epsilon_min"], "over": agent["explore_ratio"]},
            capacity=agent["buffer_size"],
            batch=agent["batch_size"],
            min_size=agent["start_train_step"],
            target_period=agent["target_update_period"],
            learning_rate={"start": config.optim["lr"], "end": 0.0},
            updates_per_decision=1.0,
            double=False,
            n_step=1,
        ),
        generations=SNAPSHOTS,
        response={"decisions": train["run_step"] // SNAPSHOTS},
        name="from-jorldy",
    )


def main(picture: str = "from_jorldy.svg") -> None:
    result = ludus.run(with_ludus())
    names = [f"@0/{record.ref.policy}" for record in result.populations[0]]  # the first one acts at random
    report = ludus.evaluate_run(result.run_dir, policies=names, episodes=config.train["eval_iteration"])
    means = [match.mean[0] for match in report.matches]
    print("mean return by snapshot:", np.round(means, 1))
    figures.lines(picture, "CartPole: mean return of a snapshot", x="snapshot", y="return", curves={"DQN": means})


if __name__ == "__main__":
    main()
