"""Correlated equilibria in a three-player negotiation: JPSRO with a referee who recommends, and with one who does not.

    python examples/tutorials/negotiation.py     # some seconds; writes negotiation.svg

Three partners divide five shares. At the same time each asks for one, two or three. If there are enough shares, each gets what it asked
for. If not, the same again, with one share less; after the second failure nobody gets anything.

Whoever asks for little is sure of little, and if all ask for much, all lose. Nobody can get more than the other two leave. The fair
division, 5/3 each, is no outcome, but a fair lottery over (2, 2, 1), (2, 1, 2) and (1, 2, 2) is: for that, somebody has to draw the lot.
"""

from __future__ import annotations

import figures
import gymnasium as gym
import numpy as np

import ludus

SHARES, ROUNDS, MOST = 5, 2, 3
GENERATIONS = 3  # 6 for the long form
EPISODES = 1_500  # of each response; 10,000 for the long form
GAMES = 3_000  # of an evaluation
SOLVERS = {
    "independent": {"meta_solver": "projected_replicator_dynamics"},
    "CCE": {"meta_solver": {"kind": "cce", "select": "max_welfare"}},
    "CE": {"meta_solver": {"kind": "ce", "select": "max_welfare"}, "responses": "recommended"},
}
"""What is solved, and for a CE what responses train against: the others' play, given what was recommended to oneself."""


class Negotiation:
    """The game, with PettingZoo's parallel interface."""

    possible_agents = ("anna", "ben", "carl")

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(0.0, 1.0, (ROUNDS + len(self.possible_agents),), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Discrete(MOST)  # to ask for 1, 2 or 3

    def reset(self, seed: int | None = None, options: dict | None = None):
        self.agents = list(self.possible_agents)
        self.round, self.asked = 0, np.zeros(3)
        return self.observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]):
        self.asked = np.array([1 + int(actions[agent]) for agent in self.possible_agents])
        agreed = self.asked.sum() <= SHARES - self.round
        self.round += 1
        over = bool(agreed or self.round == ROUNDS)
        rewards = {agent: float(n) if agreed else 0.0 for agent, n in zip(self.agents, self.asked, strict=True)}
        observations, ends = self.observations(), dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return observations, rewards, ends, dict.fromkeys(ends, False), {agent: {} for agent in ends}

    def close(self) -> None:
        """Nothing to give back."""

    def observations(self) -> dict[str, np.ndarray]:
        """The round, and what everybody asked for in the last one, oneself first."""
        now = np.arange(ROUNDS) == self.round
        return {
            agent: np.concatenate([now, np.roll(self.asked, -k) / MOST]).astype(np.float32)
            for k, agent in enumerate(self.possible_agents)
        }


def train(name: str) -> ludus.Result:
    scenario = ludus.PSRO(
        env={"id": "negotiation:Negotiation", "num_envs": 64, "options": {"utility_range": [[0, MOST]] * 3}},
        algorithm=ludus.PPO(batch=150, batch_unit="episodes", gamma=1.0),
        generations=GENERATIONS,
        response={"episodes": EPISODES},
        evaluation={"episodes": 30},
        name=name,
        **SOLVERS[name],
    )
    return ludus.run(scenario)


def main(picture: str = "negotiation.svg") -> None:
    means = {}
    for name in SOLVERS:
        result = train(name)
        match = ludus.evaluate_run(result.run_dir, policies=["@meta"], episodes=GAMES).matches[0]
        means[name] = [*match.mean, match.mean.sum()]
        print(f"{name}: {match.mean.round(2)}, together {match.mean.sum():.2f}")
        if result.joint is not None:
            print(
                "  profiles with weight:",
                [
                    (tuple(map(int, p)), round(float(result.joint[tuple(p)]), 2))
                    for p in np.argwhere(result.joint > 0.01)
                ],
            )
    labels = [*Negotiation.possible_agents, "together"]
    figures.bars(picture, "Negotiation: mean shares by solution", y="shares", labels=labels, groups=means)


if __name__ == "__main__":
    main()
