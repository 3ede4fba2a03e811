"""The shipped contract check finds solvers that break it."""

import dataclasses

import numpy as np
import pytest

from ludus.core.errors import SolverError
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.fixed import Uniform
from ludus.metagame.solvers.nash import Nash
from ludus.testing.meta_solver import check_meta_solver

NAN = float("nan")


class Broken:
    """Nash with one thing wrong, given as a function of (payoffs, warm, rng, right solution)."""

    needs = Nash.needs

    def __init__(self, spoil, needs=None):
        self.spoil = spoil
        if needs is not None:
            self.needs = needs

    def solve(self, payoffs, *, warm=None, rng):
        try:
            right = Nash(tolerance=1e-6).solve(payoffs, rng=rng)
        except SolverError:
            right = None
        answer = self.spoil(payoffs, warm, rng, right)
        if answer is None:
            raise SolverError("profile (1, 2): no")
        return answer


def changed(right, **changes):
    return right and dataclasses.replace(right, **changes)


def uniform_if_refused(payoffs, right):
    return right or Uniform().solve(payoffs, rng=np.random.default_rng(0))


def grow_warm(payoffs, warm, rng, right):
    if warm is not None:
        warm[0][0] += 1.0
    return right


def random_answer(payoffs, warm, rng, right):
    marginals = tuple(np.random.default_rng().dirichlet(np.ones(n)) for n in payoffs.sizes)
    return right and MetaSolution(marginals, NAN)


def fill_holes(payoffs, warm, rng, right):
    if right is not None or payoffs.num_players != 2 or not payoffs.zero_sum:
        return right
    mean = np.nan_to_num(payoffs.mean)
    return Nash().solve(dataclasses.replace(payoffs, mean=mean, exact=np.ones_like(payoffs.exact)), rng=rng)


def first_and_last(payoffs, warm, rng, right):
    """The first policy for player 0 and the last for player 1, also where they share a population."""
    return right and MetaSolution((np.eye(payoffs.sizes[0])[0], np.eye(payoffs.sizes[1])[-1]), NAN)


def write_into_payoffs(payoffs, warm, rng, right):
    payoffs.mean[...] = 0.0
    return right


BROKEN = {
    "sums": (
        lambda p, w, r, s: changed(s, marginals=s and tuple(2 * m for m in s.marginals)),
        "sums to 2.0; expected 1",
    ),
    "negative": (
        lambda p, w, r, s: changed(s, marginals=s and tuple(-m for m in s.marginals)),
        "expected finite numbers >= 0",
    ),
    "dtype": (
        lambda p, w, r, s: changed(s, marginals=s and tuple(m.astype(np.float32) for m in s.marginals)),
        "of dtype float32; expected float64",
    ),
    "shape": (lambda p, w, r, s: changed(s, marginals=s and tuple(m[None] for m in s.marginals)), "an array of shape"),
    "list": (
        lambda p, w, r, s: changed(s, marginals=s and tuple(m.tolist() for m in s.marginals)),
        "a list; expected an array",
    ),
    "one player": (lambda p, w, r, s: changed(s, marginals=s and s.marginals[:1]), "gives 1 marginals"),
    "nothing": (lambda p, w, r, s: changed(s, marginals=None), "gives 0 of marginals and joint"),
    "both": (lambda p, w, r, s: changed(s, joint=s and np.outer(*s.marginals)), "gives 2 of marginals and joint"),
    "tuple": (lambda p, w, r, s: s and s.marginals, "expected a MetaSolution"),
    "negative gap": (lambda p, w, r, s: changed(s, gap=-1.0), "gives the gap -1.0"),
    "false gap": (
        lambda p, w, r, s: s and MetaSolution(tuple(np.eye(len(m))[0] for m in s.marginals), 0.0),
        "but deviations gain",
    ),
    "warm object": (lambda p, w, r, s: changed(s, warm={"a": [object()]}), "warm holds a object"),
    "writes warm": (grow_warm, "writes into the `warm`"),
    "hidden randomness": (random_answer, "differently the second time"),
    "fills holes": (fill_holes, "answers a game with a missing entry"),
    "answers all": (lambda p, w, r, s: uniform_if_refused(p, s), "answers a general-sum game without a SolverError"),
    "shared": (first_and_last, "although they share a population"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_solver_is_found(what):
    spoil, sentence = BROKEN[what]
    with pytest.raises(AssertionError, match=sentence):
        check_meta_solver(Broken(spoil))


def test_a_hole_must_be_named():
    class Silent(Broken):
        def solve(self, payoffs, *, warm=None, rng):
            try:
                return Nash().solve(payoffs, rng=rng)
            except SolverError:
                raise SolverError("cannot solve") from None

    with pytest.raises(AssertionError, match="without naming its profile"):
        check_meta_solver(Silent(None))


def test_payoffs_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        check_meta_solver(Broken(write_into_payoffs))


def test_unknown_needs():
    with pytest.raises(AssertionError, match="it may hold"):
        check_meta_solver(Broken(lambda p, w, r, s: s, needs=frozenset({"luck"})))


def test_a_right_solver_with_these_parts_passes():
    check_meta_solver(Broken(lambda p, w, r, s: s))


def test_joint_answers_pass():
    def joint(payoffs, warm, rng, right):
        return right and MetaSolution(None, NAN, joint=np.outer(*right.marginals))

    check_meta_solver(Broken(joint))
