"""Makes equilibrium_answers.json: what OpenSpiel's linear program and Nash averaging, and Gambit's enumeration and logit branch, answer on
small games.

They need packages that Ludus does not. In an environment of their own:

    pip install open-spiel==2.0.2 cvxpy==1.9.3 ecos==2.0.14 osqp==1.1.3 matplotlib==3.11.2 networkx numpy==2.4.6 scipy==1.17.1
    pip install pygambit==17.0.0b2
    python tests/solvers/equilibrium_answers.py

A game is drawn as numpy.random.default_rng(seed).normal(size=(players, *sizes)), of a zero-sum one the first table counts, and of a
symmetric one half of what that table is more than its transpose, with a copy of one of the strategies as the last.
"""

import json
from pathlib import Path

import numpy as np
import pygambit
import pyspiel
from open_spiel.python.algorithms import lp_solver, nash_averaging

ZERO_SUM = [(0, (3, 4)), (1, (6, 2)), (2, (7, 7))]
SYMMETRIC = [(4, 3, 1), (7, 5, 3), (7, 7, 1)]
BIMATRIX = [(6, (3, 3)), (20, (2, 4)), (33, (4, 4))]
LOGIT = [(9, (2, 2)), (10, (3, 4)), (11, (2, 3, 2)), (12, (2, 2, 2)), (13, (3, 3, 3))]
RATIONALITIES = [0.5, 2.0, 10.0]


def drawn(seed, sizes):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


def solved(seed, sizes):
    row = drawn(seed, sizes)[0]
    x, y, value, _ = lp_solver.solve_zero_sum_matrix_game(pyspiel.create_matrix_game(row, -row))
    return {
        "seed": seed,
        "sizes": sizes,
        "row": x.ravel().tolist(),
        "column": y.ravel().tolist(),
        "value": float(value),
    }


def averaged(seed, size, copied):
    table = drawn(seed, (size, size))[0]
    table = ((table - table.T) / 2)[np.ix_([*range(size), copied], [*range(size), copied])]
    mixture, _ = nash_averaging.nash_averaging(pyspiel.create_matrix_game(table, -table))
    return {"seed": seed, "size": size, "copied": copied, "mixture": np.asarray(mixture).ravel().tolist()}


def profile(game, found):
    return [[float(found[player][s]) for s in game.get_strategies(player)] for player in game.players]


def enumerated(seed, sizes):
    game = pygambit.StrategicGame.from_arrays(*drawn(seed, sizes))
    answers = pygambit.nash.enummixed_solve(game, rational=False).equilibria
    return {"seed": seed, "sizes": sizes, "equilibria": [profile(game, found) for found in answers]}


def quantal(seed, sizes):
    game = pygambit.StrategicGame.from_arrays(*drawn(seed, sizes))
    points = pygambit.qre.logit_solve_lambda(game, lam=RATIONALITIES)
    return {"seed": seed, "sizes": sizes, "answers": [profile(game, point.profile) for point in points]}


if __name__ == "__main__":
    found = {
        "zero_sum": [solved(*game) for game in ZERO_SUM],
        "symmetric": [averaged(*game) for game in SYMMETRIC],
        "bimatrix": [enumerated(*game) for game in BIMATRIX],
        "rationalities": RATIONALITIES,
        "logit": [quantal(*game) for game in LOGIT],
    }
    lines = json.dumps(json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 9)))
    Path(__file__).with_suffix(".json").write_text(lines.replace('{"seed"', '\n{"seed"') + "\n")
