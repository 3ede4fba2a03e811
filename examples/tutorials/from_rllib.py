"""From RLlib's self-play to Ludus: tic-tac-toe against frozen copies, a new copy whenever the games are won.

python examples/tutorials/from_rllib.py     # some seconds; writes from_rllib.svg
"""

from __future__ import annotations

import figures
import numpy as np

import ludus

SNAPSHOTS = 6  # the size of the league; 20 for the long form
WIN_RATE = 0.8  # above which a copy is frozen; RLlib's example has 0.95
EPISODES = 4_000  # until a copy is frozen anyway


def train() -> ludus.Result:
    scenario = ludus.SelfPlay(
        env={"id": "openspiel/tic_tac_toe", "tree": "off"},
        algorithm=ludus.PPO(batch=250, batch_unit="episodes", learning_rate=3e-3, epochs=8),
        latest=0.0,  # no games against the newest weights:
        past="uniform",  # all against frozen copies, each as often as the others
        share="always",  # one network plays either seat
        generations=SNAPSHOTS,
        response={"win_rate": {"above": WIN_RATE}, "episodes": EPISODES},
        cells="all",  # all copies play each other afterwards,
        evaluation={"episodes": 100},  # so often in each seat
        mode="explore",
        name="from-rllib",
    )
    return ludus.run(scenario)


def main(picture: str = "from_rllib.svg") -> None:
    result = train()
    versions = [record.ref.policy for record in result.populations[0]]
    # Mean return of the row's version against the column's, over both seats.
    first = result.payoffs.mean[0]
    both = (first + result.payoffs.mean[1].T) / 2
    print("against random play:", np.round(both[:, 0], 2))
    print("opponents beaten by the last version:", int((both[-1, :-1] > 0).sum()), "of", len(versions) - 1)
    figures.heat_map(
        picture, "Mean return of the row's copy against the column's", rows=versions, columns=versions, values=both
    )


if __name__ == "__main__":
    main()
