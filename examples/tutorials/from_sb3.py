"""From PettingZoo with Stable-Baselines3 to Ludus: tic-tac-toe with action masks, one network for both seats.

python examples/tutorials/from_sb3.py     # some seconds; writes from_sb3.svg
"""

from __future__ import annotations

import figures
import numpy as np
import pettingzoo

import ludus

GENERATIONS = 5  # 20 for the long form
EPISODES = 1_500  # between two snapshots
GAMES = 200  # of the test against random moves


def train() -> ludus.Result:
    scenario = ludus.SelfPlay(
        env={"id": "pettingzoo/tictactoe_v3", "num_envs": 32},
        algorithm=ludus.PPO(batch=250, batch_unit="episodes", learning_rate=3e-3, epochs=8, gamma=1.0),
        share="always",  # one network for both seats; in each game it plays one of them, and its newest copy the other
        generations=GENERATIONS,
        response={"episodes": EPISODES},
        evaluation={"episodes": 100},
        mode="explore",
        name="from-sb3",
    )
    return ludus.run(scenario)


def play(policy: ludus.TrainedPolicy, seed: int) -> float:
    """One game in PettingZoo's own loop, the policy second, random moves first."""
    env = pettingzoo.make("aec", "classic/tictactoe-v3")  # before PettingZoo 1.27: tictactoe_v3.env()
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, _, terminated, truncated, _ = env.last()
        mask = observation["action_mask"]
        if terminated or truncated:
            return float(env.rewards["player_2"])
        if agent == "player_1":
            action = int(rng.choice(np.flatnonzero(mask)))
        else:
            action, _ = policy.predict(observation["observation"], mask, deterministic=True)
        env.step(int(action))
    raise RuntimeError("the game ended without a result")


def main(picture: str = "from_sb3.svg") -> None:
    result = train()
    shares = {"won": [], "drawn": [], "lost": []}
    for k in range(1, len(result.populations[0])):  # the first member is random play
        games = np.array([play(result.policy(0, k).of(1), seed) for seed in range(GAMES)])
        for name, value in (("won", 1), ("drawn", 0), ("lost", -1)):
            shares[name].append(float((games == value).mean()))
    print("won against random moves, by snapshot:", shares["won"])
    figures.lines(
        picture, "Tic-tac-toe, second, against random moves", x="snapshot", y="share of games", curves=shares, first=1
    )


if __name__ == "__main__":
    main()
