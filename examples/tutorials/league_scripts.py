"""A league against scripts: what you know about the game as opponents that never learn, beside players that do.

    python examples/tutorials/league_scripts.py     # some seconds; writes league_scripts.svg

The game is the one of own_game.py.
"""

from __future__ import annotations

import figures
import numpy as np
from own_game import ENV

import ludus

GENERATIONS = 4  # 15 for the long form
EPISODES = 1_500  # of each player of the league in each generation; 10,000 for the long form


class Plan:
    """A script: it sends what its plan says, or what it has left. A bot decides for one environment at a time."""

    def __init__(self, plan: int = 222) -> None:
        self.plan = [int(digit) for digit in str(plan)]

    def restart(self, player: int, seed: int) -> None:
        """Begin an episode. A script with chance takes it from the seed, so that runs can be repeated."""
        self.hill = 0

    def act(self, observation: np.ndarray, mask: np.ndarray) -> int:
        """Return the action; `mask` tells which are legal."""
        sent = min(self.plan[self.hill], int(np.flatnonzero(mask)[-1]))
        self.hill += 1
        return sent


PLANS = (222, 330, 411)  # each loses to the next one, and the last one to the first
SCRIPTS = [f"league_scripts:Plan,plan={plan}" for plan in PLANS]


def train() -> ludus.Result:
    scenario = ludus.League(
        env=ENV,
        algorithm=ludus.PPO(batch=250, batch_unit="episodes", gamma=1.0),
        opponents=SCRIPTS,  # members of the population from the start, which never train
        main=1,
        main_exploiters=1,
        league_exploiters=0,
        generations=GENERATIONS,
        response={"episodes": EPISODES},
        evaluation={"episodes": 100},
        runtime={"bots": {"processes": 0}},  # these scripts are fast and do not hang: they need no process of their own
        mode="explore",
        name="league",
    )
    return ludus.run(scenario)


def main(picture: str = "league_scripts.svg") -> None:
    result = train()
    members = [record.ref.policy for record in result.populations[0]]
    print("members:", ", ".join(members))

    # payoffs.mean[player, i, j]: member i in the first seat, member j in the second one. The mean over both seats:
    payoff = (result.payoffs.mean[0] + result.payoffs.mean[1].T) / 2
    mains = [members.index(f"main-0-{k}") for k in range(1, GENERATIONS + 1)]
    scripts = {plan: members.index(f"bot.league_scripts-Plan-plan-{plan}") for plan in PLANS}
    curves = {f"plan {plan}": payoff[mains, k].tolist() for plan, k in scripts.items()}
    for name, curve in curves.items():
        print(f"the main agent against {name}: {np.round(curve, 2)}")
    title = "The main agent against the scripts"
    figures.lines(picture, title, x="generation", y="mean return", curves=curves, first=1)


if __name__ == "__main__":
    main()
