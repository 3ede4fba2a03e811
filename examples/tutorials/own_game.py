"""Your own game in PSRO: a class with PettingZoo's parallel interface, checked, trained on, looked at.

    python examples/tutorials/own_game.py     # some seconds; writes own_game.svg and a run below ./runs

Three hills are fought for in turn. Each side has six soldiers for all three and says at the same time how many it sends; more soldiers take
the hill, and more hills win the match. There is no best plan: 2-2-2 loses to 3-3-0, which loses to 4-1-1, which loses to 2-2-2.
"""

from __future__ import annotations

import figures
import gymnasium as gym
import numpy as np

import ludus

SOLDIERS, HILLS = 6, 3
GENERATIONS = 10  # 30 for the long form
EPISODES = 2_000  # of each best response; 20,000 for the long form
MATCHES = 2_000  # of an evaluation


class Hills:
    """The game. Ludus needs no base class: it knows PettingZoo's parallel interface by its methods."""

    possible_agents = ("side_0", "side_1")  # one name with numbers: they are the same role

    def observation_space(self, agent: str) -> gym.Space:
        numbers = gym.spaces.Box(-1.0, 1.0, (HILLS + 3,), np.float32)
        return gym.spaces.Dict({"observation": numbers, "action_mask": gym.spaces.MultiBinary(SOLDIERS + 1)})

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Discrete(SOLDIERS + 1)  # how many are sent to this hill

    def reset(self, seed: int | None = None, options: dict | None = None):
        self.agents = list(self.possible_agents)
        self.hill, self.lead = 0, 0
        self.soldiers = dict.fromkeys(self.agents, SOLDIERS)
        return self.observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]):
        for agent, sent in actions.items():
            self.soldiers[agent] -= int(sent)
        self.lead += np.sign(int(actions["side_0"]) - int(actions["side_1"]))
        self.hill += 1
        over = self.hill == HILLS
        result = float(np.sign(self.lead)) if over else 0.0
        rewards = {"side_0": result, "side_1": -result}
        observations, ends = self.observations(), dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return observations, rewards, ends, dict.fromkeys(ends, False), {agent: {} for agent in ends}

    def close(self) -> None:
        """Nothing to give back."""

    def observations(self) -> dict[str, dict[str, np.ndarray]]:
        """Each side sees the hill, what it and the other have left, and who leads, all from its own point of view."""
        seen = {}
        for agent, other, sign in (("side_0", "side_1", 1), ("side_1", "side_0", -1)):
            left = [self.soldiers[agent] / SOLDIERS, self.soldiers[other] / SOLDIERS, sign * self.lead / HILLS]
            numbers = np.concatenate([np.arange(HILLS) == self.hill, left]).astype(np.float32)
            mask = (np.arange(SOLDIERS + 1) <= self.soldiers[agent]).astype(np.int8)
            seen[agent] = {"observation": numbers, "action_mask": mask}
        return seen


# What Ludus cannot know from the interface: one side's gain is the other's loss, and the sides are interchangeable, so that they
# share one population.
ENV = {
    "id": "own_game:Hills",
    "num_envs": 64,
    "options": {"zero_sum": True, "symmetry": [[0, 1]], "utility_range": [[-1, 1], [-1, 1]]},
}


def train(name: str = "hills", seed: int = 0) -> ludus.Result:
    scenario = ludus.PSRO(
        env=ENV,
        algorithm=ludus.PPO(batch=200, batch_unit="episodes", gamma=1.0, entropy=0.05),
        meta_solver="nash",
        generations=GENERATIONS,
        response={"episodes": EPISODES},
        evaluation={"episodes": 100},  # of each pair of policies: without a game tree, payoffs are played
        mode="explore",  # members keep their randomness, which a game of bluff needs
        seed=seed,
        name=name,
    )
    return ludus.run(scenario)


def main(picture: str = "own_game.svg") -> None:
    result = train()
    members = [record.ref.policy for record in result.populations[0]]
    weights = result.meta_strategies[0]
    for name, weight in zip(members, weights, strict=True):
        print(f"{name}: {weight:.2f}")

    report = ludus.evaluate_run(result.run_dir, policies=["@meta", "random"], episodes=MATCHES)
    for match in report.matches:
        print(f"{' against '.join(match.policies)}: {match.mean[0]:+.2f} ± {match.half_width[0]:.2f}")

    exploiters = ludus.exploit_run(result.run_dir, budget=2 * EPISODES, episodes=MATCHES)
    print(
        f"a policy trained against the mixture gains {exploiters.gain.max():+.2f} ± {exploiters.half_width.max():.2f}"
    )

    title = "Hills: mean return of the row's policy against the column's"
    figures.heat_map(picture, title, rows=members, columns=members, values=result.payoffs.mean[0])


if __name__ == "__main__":
    main()
