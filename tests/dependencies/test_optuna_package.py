"""Optuna, behind `ludus sweep` (`ludus.apps.experiments.sweep`)."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.pruners import MedianPruner, PercentilePruner
from optuna.samplers import GridSampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import Trial, TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)


def study_of(pruner=None, sampler=None, storage=None, direction="maximize"):
    return optuna.create_study(
        storage=storage or InMemoryStorage(),
        study_name="sweep",
        direction=direction,
        sampler=sampler,
        pruner=pruner,
        load_if_exists=True,
    )


def pruned_at(pruner, values):
    """Return the step at which a trial of these values is given up, None for never; five others had 5 at all steps."""
    study = study_of(pruner)
    for _ in range(5):
        trial = study.ask()
        for step in range(len(values)):
            trial.report(5.0, step)
        study.tell(trial, 5.0)
    trial = study.ask()
    for step, value in enumerate(values):
        trial.report(value, step)
        if trial.should_prune():
            return step
    return None


@pytest.mark.parametrize("pruner", [MedianPruner, lambda: PercentilePruner(50.0)])
def test_median_pruner_compares_the_best_value_so_far(pruner):
    """`pruner: median` and `percentile`: a trial that was good once and fell is never pruned, and one that begins badly is at once (docs:
    guides/sweep.md)."""
    assert pruned_at(pruner(), [10.0, 0.0, 0.0, 0.0]) is None
    assert pruned_at(pruner(), [0.0, 10.0, 10.0, 10.0]) == 0
    assert pruned_at(MedianPruner(n_warmup_steps=1), [0.0, 10.0, 10.0, 10.0]) is None


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")
def test_median_pruner_gives_up_a_trial_whose_first_value_is_nan():
    """Why `intermediate_values` reports finite values only: before any episode has ended a return is NaN."""
    assert pruned_at(MedianPruner(), [math.nan, 10.0]) == 0


def test_study_that_is_there_keeps_its_direction():
    """Why a sweep that has begun accepts another number of trials only: another metric would be sought in the old direction, silently."""
    storage = InMemoryStorage()
    study_of(storage=storage, direction="minimize")
    assert study_of(storage=storage, direction="maximize").direction == optuna.study.StudyDirection.MINIMIZE


@pytest.mark.parametrize("sampler", [RandomSampler, TPESampler])
def test_sampler_with_a_seed_draws_the_same_again_in_the_next_session(sampler):
    """Why `sampler_of` derives a seed for each trial."""
    storage = InMemoryStorage()
    draws = []
    for _ in range(2):
        study = study_of(storage=storage, sampler=sampler(seed=0))
        trial = study.ask()
        draws.append(trial.suggest_float("x", 0.0, 1.0))
        study.tell(trial, 1.0)
    assert draws[0] == draws[1]


def test_running_trial_of_a_killed_session_is_taken_up_by_its_id():
    """`_Trials` goes on with it: what was suggested and reported before stays."""
    storage = InMemoryStorage()
    trial = study_of(storage=storage).ask()
    suggested = trial.suggest_float("x", 0.0, 1.0)
    trial.report(3.0, 7)
    study = study_of(storage=storage)
    (frozen,) = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    resumed = Trial(study, frozen._trial_id)
    assert resumed.suggest_float("x", 0.0, 1.0) == suggested
    assert frozen.intermediate_values == {7: 3.0}


def test_last_trial_of_a_grid_stops_a_loop_that_does_not_run():
    """`_Trials._tell` passes over this RuntimeError."""
    study = study_of(sampler=GridSampler({"x": [1.0]}))
    trial = study.ask()
    trial.suggest_float("x", 0.0, 2.0)
    with pytest.raises(RuntimeError, match=r"Study\.stop"):
        study.tell(trial, 1.0)


def test_value_at_a_step_that_was_reported_is_kept_with_a_warning():
    """Why `_Trials.look` reports steps after the last one that the study has."""
    trial = study_of().ask()
    trial.report(1.0, 3)
    with pytest.warns(UserWarning, match="already reported"):
        trial.report(2.0, 3)
    assert trial.study.get_trials(deepcopy=False)[0].intermediate_values == {3: 1.0}
