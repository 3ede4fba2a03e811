"""A tournament with ratings: scripts, chance and trained policies, and why one number is not enough.

    python examples/tutorials/tournament.py     # some seconds; writes tournament.svg

The game is the one of own_game.py, the scripts are those of league_scripts.py.
"""

from __future__ import annotations

import figures
import own_game
from league_scripts import SCRIPTS

import ludus

EPISODES = 100  # deals of each pairing, each from both sides; 2,000 for the long form
RATINGS = ["elo", "mean_payoff", "worst_opponent", "nash_average"]


def main(picture: str = "tournament.svg") -> None:
    trained = own_game.train("entrant").run_dir
    entrants = {
        str(trained): "PSRO",  # the run: its mixture
        f"{trained}@newest": "newest",  # its last policy alone
        "random": "random",
        **{script: script[-3:] for script in SCRIPTS},
    }
    options = ludus.TournamentOptions(episodes=EPISODES)
    report = ludus.play_tournament(list(entrants), "tournaments/hills", options=options, ratings=RATINGS)

    names = [entrants[standing.name] for standing in report.standings]
    print("by", report.order, "".join(f"{name:>16}" for name in RATINGS))
    for k, name in enumerate(names):
        print(f"{name:>6}", "".join(f"{report.ratings[rating].rating[k]:16.2f}" for rating in RATINGS))
    title = "Mean return of the row's entrant against the column's"
    figures.heat_map(picture, title, rows=names, columns=names, values=report.cross)


if __name__ == "__main__":
    main()
