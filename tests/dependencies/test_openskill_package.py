"""openskill, behind the rating of that name (`ludus.contrib.ratings.open_skill`) and the standings of people
(`ludus.apps.play.standings`)."""

from __future__ import annotations

import pytest
from openskill import models

KINDS = ("PlackettLuce", "BradleyTerryFull", "BradleyTerryPart", "ThurstoneMostellerFull", "ThurstoneMostellerPart")


def one_game(model, sigma=25 / 3, **options):
    """Return both ratings after one game of two new players. Options: of `rate`."""
    first, second = model.rating(sigma=sigma), model.rating(sigma=sigma)
    [[first], [second]] = model.rate([[first], [second]], **options)
    return first, second


def test_rate_takes_a_tau_of_zero_for_none_given():
    """`OpenSkill.rate` gives tau to the model: `rate(tau=0)` would leave the default drift of 25/300."""
    drifting = one_game(models.PlackettLuce(), ranks=[0, 1])[0].sigma
    assert one_game(models.PlackettLuce(), ranks=[0, 1], tau=0)[0].sigma == drifting
    assert one_game(models.PlackettLuce(tau=0), ranks=[0, 1])[0].sigma < drifting
    assert one_game(models.PlackettLuce(), ranks=[0, 1], tau=1e-12)[0].sigma < drifting


@pytest.mark.parametrize("kind", KINDS)
def test_every_game_narrows_sigma_without_drift(kind):
    """The docstring of `OpenSkill` promises that with `tau=0` each game narrows the interval."""
    model = getattr(models, kind)(tau=0.0)
    first, second = model.rating(), model.rating()
    for _ in range(200):
        before = first.sigma
        [[first], [second]] = model.rate([[first], [second]], ranks=[0, 1])
        assert first.sigma < before


def test_drift_widens_sigma_while_one_player_wins_every_game():
    """Why `OpenSkill.tau` is 0 by default: policies of a population are frozen."""
    model = models.PlackettLuce()
    first, second = model.rating(), model.rating()
    widths = []
    for _ in range(3000):
        [[first], [second]] = model.rate([[first], [second]], ranks=[0, 1])
        widths.append(first.sigma)
    assert widths[2999] > widths[699]


@pytest.mark.parametrize(("ranks", "is_draw"), [((0.2, 0.7), True), ((-0.5, 0.5), True), ((0.9, 1.1), False)])
def test_plackett_luce_cuts_ranks_to_integers(ranks, is_draw):
    """`open_skill._games` gives ranks as counts of better teams, whole numbers: fractions below one step are a draw."""
    first, second = one_game(models.PlackettLuce(), ranks=list(ranks))
    assert (first.mu == second.mu) == is_draw


@pytest.mark.parametrize("kind", KINDS[1:])
def test_other_models_keep_fractions_of_ranks(kind):
    """All models of `open_skill.MODELS` get the same whole ranks, so that they agree on what a draw is."""
    first, second = one_game(getattr(models, kind)(), ranks=[0.2, 0.7])
    assert first.mu > 25 > second.mu


def test_scores_keep_their_fractions():
    """`standings.ratings_of` gives returns as scores, not as ranks."""
    first, second = one_game(models.PlackettLuce(), scores=[0.7, 0.2])
    assert first.mu > 25 > second.mu


def test_limit_sigma_stays_on_for_later_calls():
    """Ludus never gives `limit_sigma`, and makes one model for one table of ratings."""
    model = models.PlackettLuce()
    assert one_game(model, sigma=1.0, ranks=[0, 0])[0].sigma > 1.0
    assert one_game(model, sigma=1.0, ranks=[0, 0], limit_sigma=True)[0].sigma == 1.0
    assert one_game(model, sigma=1.0, ranks=[0, 0])[0].sigma == 1.0


def test_weights_of_teams_of_one_change_gains_whatever_they_are():
    """Ludus never gives `weights`: teams of one get 2.0 for any, which doubles a gain and halves a loss."""
    gain = one_game(models.PlackettLuce(), ranks=[0, 1])[0].mu - 25
    for weight in (1.0, 3.0):
        first, second = one_game(models.PlackettLuce(), ranks=[0, 1], weights=[[weight], [weight]])
        assert first.mu - 25 == pytest.approx(2 * gain)
        assert second.mu - 25 == pytest.approx(-gain / 2)


def test_one_against_two_gains_less_by_a_draw_than_by_a_win_alone():
    """`OpenSkill.teams` sums the skills of a team: a draw against two strangers lifts the one, though less than a win against one does."""
    model = models.PlackettLuce()
    alone, partner, other = (model.rating() for _ in range(3))
    [[alone], [partner, other]] = model.rate([[alone], [partner, other]], ranks=[0, 0])
    assert 25 < alone.mu < one_game(model, ranks=[0, 1])[0].mu
    assert partner.mu == other.mu < 25
