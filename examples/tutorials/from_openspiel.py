"""From OpenSpiel's psro_v2 to Ludus: PSRO with exact best responses, and with DQN, on Kuhn poker.

python examples/tutorials/from_openspiel.py     # some seconds; writes from_openspiel.svg
"""

from __future__ import annotations

import figures

import ludus

GAME = "kuhn_poker"  # or leduc_poker
ITERATIONS = 8  # 30 for the long form
EPISODES = 2_000  # of each response by DQN


def exact() -> list[float]:
    scenario = ludus.PSRO(
        env=f"openspiel/{GAME}",
        algorithm="exact",  # the oracle BR
        meta_solver="nash",
        generations=ITERATIONS,
        stop=None,
        name="from-openspiel-exact",
    )
    return list(ludus.run(scenario).nash_conv)


def with_dqn() -> list[float]:
    scenario = ludus.PSRO(
        env=f"openspiel/{GAME}",
        algorithm=ludus.DQN(hidden=(64, 64)),  # the oracle DQN
        meta_solver="nash",
        generations=ITERATIONS,
        response={"episodes": EPISODES},
        name="from-openspiel-dqn",
    )
    return list(ludus.run(scenario).nash_conv)


def main(picture: str = "from_openspiel.svg") -> None:
    curves = {"exact responses": exact(), "DQN": with_dqn()}
    for name, curve in curves.items():
        print(f"{name}: NashConv {curve[0]:.3f} -> {curve[-1]:.3f}")
    figures.lines(picture, f"PSRO on {GAME}", x="generation", y="NashConv", curves=curves)


if __name__ == "__main__":
    main()
