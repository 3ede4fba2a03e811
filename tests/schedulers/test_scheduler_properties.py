"""Properties of matchmaking, pairings and parts of meta-games, on random input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.types import MetaSolution, PolicyRef
from ludus.metagame.solvers import normal_form
from ludus.schedulers.league import ROLES, LeaguePlayer, LeagueRules, Opponent, PlayerCheckpoint, opponent_probabilities
from ludus.schedulers.pbt import Range, TuningRules, copies, perturb
from ludus.schedulers.responses import conditional, opponents, rectified, supported
from ludus.schedulers.self_play import PrioritisedPast, QualityPast, UniformPast, grown
from ludus.schedulers.win_rates import Member, pairing
from ludus.testing.meta_solver import exact_view

POPULATIONS = st.sampled_from([(0, 0), (0, 1), (0, 0, 0), (0, 1, 1), (0, 1, 2), (0, 0, 1, 1)])
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def leagues(draw: st.DrawFn) -> tuple[LeaguePlayer, list[LeaguePlayer], list[PlayerCheckpoint], dict[Opponent, float]]:
    mains = [LeaguePlayer(0, "main", number) for number in range(draw(st.integers(1, 3)))]
    parents = [None, *mains, *(LeaguePlayer(0, role, 0) for role in ROLES[1:])]
    made_by = draw(st.lists(st.sampled_from(parents), max_size=8))
    past = [PlayerCheckpoint(Member(0, k), parent) for k, parent in enumerate([None, *made_by])]
    rates = {o: draw(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])) for o in [*mains, *past]}
    role = draw(st.sampled_from(ROLES))
    player = mains[0] if role == "main" else LeaguePlayer(0, role, 0)
    return player, mains, past, rates


@given(leagues())
def test_matchmaking_is_a_distribution_over_who_is_there(
    league: tuple[LeaguePlayer, list[LeaguePlayer], list[PlayerCheckpoint], dict[Opponent, float]],
) -> None:
    player, mains, past, rates = league
    rules = LeagueRules()
    met = opponent_probabilities(player, mains, past, lambda _, other: rates[other], rules)
    assert sum(met.values()) == pytest.approx(1.0)
    assert min(met.values()) > 0
    assert set(met) <= {*mains, *past}
    if player.role == "league_exploiter":
        assert set(met) <= set(past)
    if player.role == "main":
        of_past = sum(share for other, share in met.items() if isinstance(other, PlayerCheckpoint))
        assert of_past >= rules.past - 1e-9


@given(POPULATIONS, st.integers(0, 3), st.integers(0, 3))
def test_pairings_seat_everybody_once(population: tuple[int, ...], mine: int, other: int) -> None:
    reference = dict.fromkeys(population, 7)
    for k in set(population):
        for q in set(population):
            pairs = pairing(population, Member(k, mine), Member(q, other), reference)
            assert len(pairs) == (0 if k == q and population.count(k) == 1 else population.count(k))
            for seat, profile in pairs:
                assert (population[seat], profile[seat]) == (k, mine)
                rest = [(p, place) for p, place in enumerate(profile) if p != seat]
                assert all(place == (other if population[p] == q else 7) for p, place in rest)


@given(POPULATIONS, SEEDS)
def test_a_solved_part_is_a_solution_of_the_whole_with_the_same_payoffs(population: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = {k: int(rng.integers(1, 5)) for k in set(population)}
    places = {k: sorted(rng.choice(n, int(rng.integers(1, n + 1)), replace=False).tolist()) for k, n in size.items()}
    shape = tuple(size[k] for k in population)
    payoffs = exact_view(rng.normal(size=(len(shape), *shape)), zero_sum=False, population=population)
    part = payoffs.part(places)
    assert part.exact.size == np.prod([len(places[k]) for k in population])
    marginals = tuple(rng.dirichlet(np.ones(len(places[k]))) for k in population)
    joint = rng.dirichlet(np.ones(part.exact.size)).reshape(part.sizes)
    for solution in (MetaSolution(marginals, 0.0), MetaSolution(None, 0.0, joint=joint)):
        whole = normal_form.lift(solution, payoffs, places)
        for player, k in enumerate(population):
            np.testing.assert_allclose(
                normal_form.expected_payoffs(payoffs.mean[player], whole, player)[places[k]],
                normal_form.expected_payoffs(part.mean[player], solution, player),
            )


@given(SEEDS)
def test_conditionals_make_up_the_joint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, size=3).tolist())
    joint = rng.dirichlet(np.ones(int(np.prod(shape)))).reshape(shape)
    for player in range(3):
        marginal = MetaSolution(None, 0.0, joint=joint).strategies[player]
        told = sum(p * conditional(joint, player, i) for i, p in enumerate(marginal))
        np.testing.assert_allclose(told, joint, atol=1e-12)


@given(SEEDS, st.integers(1, 6))
def test_rectified_weights_are_on_what_is_beaten(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size, size))
    mean = np.stack([matrix, -matrix])
    strategies = tuple(rng.dirichlet(np.ones(size)) for _ in range(2))
    for player in range(2):
        own = np.moveaxis(mean[player], player, 0)
        value = strategies[player] @ own @ strategies[1 - player]
        for strategy in range(size):
            weights = rectified(mean, strategies, player=player, strategy=strategy)
            assert weights.sum() == pytest.approx(1.0)
            beats = own[strategy] >= value - 1e-8
            assert not beats.any() or (weights[~beats] == 0).all()


@given(SEEDS, st.integers(1, 8), st.integers(1, 8))
def test_the_supported_are_the_likeliest(seed: int, size: int, most: int) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.full(size, 0.3))
    kept = supported(probs, least=0.05, most=most)
    assert kept == sorted(set(kept))
    assert 1 <= len(kept) <= most
    left = np.delete(probs, kept)
    assert left.size == 0 or left.max() <= probs[kept].min()


@given(SEEDS, st.integers(1, 6))
def test_opponents_of_marginals_and_of_their_product_are_alike(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    marginals = (rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(2)))
    refs = tuple(tuple(PolicyRef(p, str(i)) for i in range(len(m))) for p, m in enumerate(marginals))
    apart = opponents(MetaSolution(marginals, 0.0), refs)
    (joint,) = opponents(MetaSolution(None, 0.0, joint=np.outer(*marginals)), refs).factors
    for seat, factor in enumerate(apart.factors):
        total: dict[PolicyRef, float] = {}
        for entry, share in zip(joint.entries, joint.probs, strict=True):
            total[entry[seat]] = total.get(entry[seat], 0.0) + share
        assert {entry[0]: pytest.approx(p) for entry, p in zip(factor.entries, factor.probs, strict=True)} == total


@given(
    SEEDS, st.integers(1, 8), st.sampled_from([UniformPast(), UniformPast(last=2), QualityPast(), PrioritisedPast()])
)
def test_the_past_is_met_by_a_distribution(
    seed: int, size: int, rule: UniformPast | QualityPast | PrioritisedPast
) -> None:
    rng = np.random.default_rng(seed)
    scores, rates = rng.normal(size=size) * 100, rng.random(size)
    probs = rule.probabilities(scores, rates)
    assert probs.shape == (size,)
    assert (probs >= 0).all()
    assert probs.sum() == pytest.approx(1.0)
    after = grown(rule.updated(scores, rates, 100.0), size + 1)
    assert after[-1] == after[:-1].max()
    assert (after[:-1] <= scores).all()


@given(SEEDS, st.integers(2, 12), st.floats(0, 0.5))
def test_losers_and_winners_are_apart(seed: int, size: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    ratings = rng.integers(0, 4, size).astype(float)
    rules = TuningRules(fraction=fraction)
    pairs = copies(ratings, rules, rng)
    assert len(pairs) == max(int(fraction > 0), int(fraction * size + 1e-9))
    assert not set(pairs) & set(pairs.values())
    assert all(ratings[loser] <= ratings[winner] for loser, winner in pairs.items())
    ranges = {"rate": Range(low=1e-5, high=1e-1), "share": Range(low=-1, high=1, log=False)}
    hyper = {"rate": 3e-3, "share": 0.5}
    out = perturb(hyper, ranges, rules, rng)
    assert set(out) == set(hyper)
    assert all(ranges[name].low <= value <= ranges[name].high for name, value in out.items())
