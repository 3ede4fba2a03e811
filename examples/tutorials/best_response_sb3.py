"""A best response to a run of Ludus by MaskablePPO of sb3-contrib, in a tournament with Ludus's own.

    python examples/tutorials/best_response_sb3.py     # about two minutes; writes best_response_sb3.svg

Leduc poker: six cards, two rounds, two players. A population of eight generations has weaknesses; both responses look for them.
"""

from __future__ import annotations

import importlib
from typing import Any

import figures
import numpy as np

import ludus

ENV = "openspiel/leduc_poker"
ALGORITHM = "sb3_contrib:MaskablePPO"
GENERATIONS = 8
DECISIONS = 200_000  # of each response
DEALS = 5_000  # of each pairing in the tournament, each in both seats


def population() -> str:
    """PSRO, whose mixture is to be attacked."""
    scenario = ludus.PSRO(env=ENV, algorithm="exact", meta_solver="nash", generations=GENERATIONS, name="population")
    return str(ludus.run(scenario).run_dir)


def by_sb3(run: str) -> str:
    """Train with MaskablePPO against the mixture, from both seats."""
    envs = ludus.sb3_vec_env(ENV, num_envs=64, player=[0, 1], opponents=f"{run}@meta", seed=0)
    model = algorithm()("MlpPolicy", envs, n_steps=64, batch_size=512, gamma=1.0, ent_coef=0.01, seed=0, device="cpu")
    model.learn(DECISIONS)
    model.save("best_response.zip")
    envs.close()
    return "sb3:best_response.zip,deterministic=true"


def algorithm() -> Any:
    module, _, name = ALGORITHM.partition(":")
    return getattr(importlib.import_module(module), name)


def by_ludus(run: str) -> str:
    """The same with a run of Ludus: both players learn against the mixture, which never changes."""
    scenario = ludus.FixedOpponents(
        env=ENV,
        algorithm=ludus.PPO(batch=4096),
        learners=[0, 1],
        opponents=[run],
        generations=1,
        response={"decisions": DECISIONS // 2},
        mode="greedy",
        name="attack",
    )
    return f"{ludus.run(scenario).run_dir}@newest"


def best_possible(run: str) -> float:
    """What an exact best response earns, as the mean of both seats."""
    exact = ludus.evaluate_run(run, policies=["@meta"], episodes=2).exploitability
    assert exact is not None
    return float(np.mean(np.array(exact.value) + np.array(exact.gain)))


def main(picture: str = "best_response_sb3.svg") -> None:
    run = population()
    entrants = {run: "mixture", by_sb3(run): "MaskablePPO", by_ludus(run): "Ludus's PPO", "random": "random"}
    options = ludus.TournamentOptions(episodes=DEALS)
    report = ludus.play_tournament(list(entrants), "tournaments/best-response", options=options)

    names = [entrants[standing.name] for standing in report.standings]
    target = names.index("mixture")
    for name, standing in zip(names, report.standings, strict=True):
        print(f"{name:>12} {standing.mean:+.3f} ± {standing.half_width:.3f} chips a game in the tournament")
    earned = {}
    for k, name in enumerate(names):
        if k != target:
            earned[name] = float(report.cross[k, target])
            print(f"{name:>12} {earned[name]:+.3f} ± {report.cross_half[k, target]:.3f} against the mixture")
    earned["best possible"] = best_possible(run)
    print(f"at best      {earned['best possible']:+.3f}")
    title = "Chips a game against the mixture"
    figures.bars(picture, title, y="chips a game", labels=list(earned), groups={"mean return": list(earned.values())})


if __name__ == "__main__":
    main()
