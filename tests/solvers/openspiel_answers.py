"""Makes openspiel_answers.json: what OpenSpiel's alpharank and jpsro answer on small random games.

They need packages that Ludus does not. In an environment of their own:

    pip install open-spiel==2.0.2 cvxpy==1.9.3 ecos==2.0.14 osqp==1.1.3 matplotlib==3.11.2 networkx numpy==2.4.6 scipy==1.17.1
    python tests/solvers/openspiel_answers.py

A game is drawn as numpy.random.default_rng(seed).normal(size=(players, *sizes)).
"""

import json
from pathlib import Path

import numpy as np
from open_spiel.python.algorithms import jpsro
from open_spiel.python.egt import alpharank

GAMES = [(0, (3, 4)), (1, (2, 3, 2)), (2, (5, 5)), (3, (2, 2, 2, 2))]
FINITE = [{"alpha": 0.5, "m": 50}, {"alpha": 2.0, "m": 10}, {"alpha": 8.0, "m": 5}]
NOISE = 0.01


def drawn(seed, sizes):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


def ranked(tables, **options):
    return np.asarray(alpharank.compute(tables, **options)[2])


def chosen(solver, mean):
    dist, _ = solver(mean.copy(), [np.ones(n) for n in mean.shape[1:]])
    return np.asarray(dist)


def answers(seed, sizes):
    mean = drawn(seed, sizes)
    tables = list(mean)
    welfare = [float((chosen(solver, mean) * mean).sum()) for solver in (jpsro._mwcce, jpsro._mwce)]
    return {
        "seed": seed,
        "sizes": sizes,
        "finite": [{**options, "answer": ranked(tables, **options).tolist()} for options in FINITE],
        "infinite": ranked(tables, use_inf_alpha=True, inf_alpha_eps=NOISE).tolist(),
        "sweep": np.asarray(alpharank.sweep_pi_vs_alpha(tables)).ravel().tolist(),
        "max_gini_cce": chosen(jpsro._mgcce, mean).ravel().tolist(),
        "max_gini_ce": chosen(jpsro._mgce, mean).ravel().tolist(),
        "welfare_cce": welfare[0],
        "welfare_ce": welfare[1],
    }


def single(seed, size):
    payoff = drawn(seed, (size, size))[0]
    return {
        "seed": seed,
        "size": size,
        "finite": [{**options, "answer": ranked([payoff], **options).tolist()} for options in FINITE],
        "infinite": ranked([payoff], use_inf_alpha=True, inf_alpha_eps=NOISE).tolist(),
    }


if __name__ == "__main__":
    found = {"noise": NOISE, "games": [answers(*game) for game in GAMES], "single": [single(4, 6), single(5, 3)]}
    lines = json.dumps(json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 12)))
    Path(__file__).with_suffix(".json").write_text(lines.replace('{"seed"', '\n{"seed"') + "\n")
