"""The invariants of the design, watched in whole runs; INVARIANTS.md here says which test elsewhere holds which invariant in the small."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import RunError
from ludus.core.recorders import joined
from ludus.core.types import ActionRequests, MetaSolution, PolicyOutput, PolicyRef
from ludus.envs.registry import make_env
from ludus.evaluation.evaluate import evaluate_run
from ludus.evaluation.exact import ExactEvaluator
from ludus.policies.file import load_policy
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.runs.runner import resume, run
from ludus.runs.scenario import PSRO
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.training.stopping import STOPPERS

SMALL = """
env: {id: openspiel/kuhn_poker, num_envs: 12}
algorithm: {kind: ppo, batch: 30, epochs: 1, hidden: [8]}
response: {episodes: 90}
generations: 2
evaluation: {episodes: 40}
"""


def scenario(*changes: str, text: str = SMALL) -> PSRO:
    return parse_scenario(text, list(changes))


def go(folder: Path, *changes: str, text: str = SMALL) -> Any:
    return run(scenario(*changes, text=text), run_dir=folder, report=False)


# ---------------------------------------------------------------------------------------------- 1, 2: who plays


class Watch:
    """Notes who acts in every slot, and checks each decision against the one before it in the same episode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.request: RolloutRequest | None = None
        self.playing: dict[tuple[int, int], PolicyRef] = {}
        self.opponents: set[PolicyRef] = set()
        self.learners: dict[str, set[int]] = {}
        self.changed_within = 0
        self.rollouts: list[tuple[RolloutRequest, Rollout]] = []
        act, steps = LocalBank.act, RolloutWorker._steps

        def acting(bank: LocalBank, player: int, due: ActionRequests, noise: np.ndarray) -> PolicyOutput:
            self.decision(bank, player, due)
            return act(bank, player, due, noise)

        def playing(worker: RolloutWorker, request: RolloutRequest) -> Iterator[Rollout | None]:
            if not request.carry_on:
                self.playing = {}
            self.request = request
            for rollout in steps(worker, request):
                if rollout is not None:
                    self.rollouts.append((request, rollout))
                yield rollout

        monkeypatch.setattr(LocalBank, "act", acting)
        monkeypatch.setattr(RolloutWorker, "_steps", playing)

    def decision(self, bank: LocalBank, player: int, due: ActionRequests) -> None:
        assert self.request is not None
        learner = self.request.learner
        for slot, first in zip(due.slot.tolist(), due.first.tolist(), strict=True):
            entry = bank._entries[int(bank._bound[player][slot])]
            assert entry is not None
            before = self.playing.get((player, slot))
            mine = learner is not None and player == self.request.seats[slot % len(self.request.seats)]
            if mine:
                assert entry.ref == learner, "the learner's newest weights play its own episodes"
                self.learners.setdefault(entry.ref.policy, set()).add(player)
                self.changed_within += not first and before != entry.ref
            else:
                assert entry.ref != learner
                assert first or before == entry.ref, "an opponent stays for its episode"
                self.opponents.add(entry.ref)
            self.playing[player, slot] = entry.ref


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.batch=9", "algorithm.batch_unit=decisions", "response={decisions: 120}"],
        ["env.id=openspiel/blotto(coins=4,fields=2)", "mode=explore"],
        ["env.tree=off", "evaluation.payoffs=simulate", "mode=explore", "algorithm.batch_unit=decisions"],
    ],
    ids=["fragments", "shared population", "simulated"],
)
def test_opponents_stay_and_learners_act(changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. An opponent's draw stays for the whole episode, over fragments too; the learner acts in its own episodes."""
    watch = Watch(monkeypatch)
    result = go(tmp_path, *changes, "meta_solver=uniform", "generations=3")
    members = {record.ref for population in result.populations for record in population}
    assert watch.opponents <= members
    assert len(watch.opponents) > 2
    if "response={decisions: 120}" in changes:
        assert watch.changed_within > 0  # the learner's weights may move within an episode, and here they did
    # 2. each player trains a policy of its own
    shared = len(result.populations) == 1
    for policy, seats in watch.learners.items():
        assert seats == ({0, 1} if shared else {int(policy.split("-")[0])})
    assert len(watch.learners) == 3 * len(result.populations)


# ---------------------------------------------------------------------------------------------- 5, 6: payoffs


def _exact(result: Any) -> np.ndarray:
    """The payoffs of what lies in the policy files, by the game tree."""
    env = make_env(result.scenario.env.id, num_envs=1)
    exact = ExactEvaluator(env.tree, result.payoffs.population)  # type: ignore[attr-defined]
    for population in result.populations:
        for record in population:
            ref = record.ref
            path = result.run_dir / "policies" / str(ref.population) / f"{ref.policy}.safetensors"
            exact.add(ref, load_policy(path))
    return exact.payoffs()


@pytest.mark.parametrize(("mode", "episodes"), [("greedy", 90), ("explore", 30)])
def test_evaluation_plays_the_weights_that_are_stored(mode: str, episodes: int, tmp_path: Path) -> None:
    """6. Simulated payoffs are those of the policy files, in the mode that the database gives. (A response of one iteration
    once played the weights that it had started from.)"""
    changes = [
        f"response.episodes={episodes}",
        "algorithm.epochs=30",
        "algorithm.learning_rate={start: 0.03}",
        f"mode={mode}",
    ]
    result = go(tmp_path, *changes, "evaluation={payoffs: simulate, episodes: 2000}")
    assert (result.payoffs.count == 2000).all()
    error = np.sqrt(result.payoffs.m2 / 1999 / 2000)
    assert (np.abs(result.payoffs.mean - _exact(result)) < 5 * error + 1e-9).all()
    # and what was trained differs from what it started from by more than that
    assert np.abs(result.payoffs.mean[0][1:, 0] - result.payoffs.mean[0][0, 0]).min() > 0.05
    with Reader(tmp_path) as reader:
        modes = {seat.mode for stored in reader.matches() for seat in stored.match.seats if "-0" not in seat.policy}
        assert modes == {mode}
        assert {p.record.ref.mode for p in reader.policies() if p.record.index} == {mode}


@pytest.mark.parametrize("mode", ["greedy", "explore"])
def test_ludus_evaluate_judges_what_the_run_played(mode: str, tmp_path: Path) -> None:
    """6. The command's NashConv is the run's, in each mode."""
    result = go(tmp_path, f"mode={mode}")
    report = evaluate_run(tmp_path, episodes=3000)
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(result.nash_conv[-1], abs=1e-12)
    for match in report.matches:
        assert match.exact is not None
        assert (np.abs(match.mean - match.exact) < 2.5 * match.half_width + 1e-9).all()


def test_seats_stay_apart_in_a_population_that_players_share(tmp_path: Path) -> None:
    """5. (i, j) and (j, i) are cells of their own, each with its own count, and unequal counts do not move the meta-strategy."""
    game = "env.id=openspiel/blotto(coins=4,fields=2)"
    result = go(
        tmp_path, game, "evaluation={payoffs: simulate, episodes: 500}", "meta_solver=projected_replicator_dynamics"
    )
    view = result.payoffs
    assert view.population == (0, 0)
    mirrored = view.mean.transpose(0, 2, 1)[::-1]
    spread = np.sqrt(view.m2 / 499 / 500 + view.m2.transpose(0, 2, 1)[::-1] / 499 / 500)
    assert (np.abs(view.mean - mirrored) < 5 * spread + 1e-9).all()
    assert (np.abs(view.mean - _exact(result)) < 5 * np.sqrt(view.m2 / 499 / 500) + 1e-9).all()


# ---------------------------------------------------------------------------------------------- 8: what travels with weights


def test_exploration_travels_with_the_weights(tmp_path: Path) -> None:
    """8. A member that is played as it explored does so with the epsilon that it had, also when it is read back."""
    algorithm = "{kind: dqn, rollout: 30, min_size: 20, batch: 16, hidden: [8], epsilon: {start: 0.25}}"
    result = go(
        tmp_path, f"algorithm={algorithm}", "mode=explore", "evaluation.payoffs=simulate", "evaluation.episodes=4000"
    )
    policy = result.policy(0)
    assert float(policy.weights()["epsilon"][0]) == 0.25
    env = make_env("openspiel/kuhn_poker", num_envs=1)
    probs = policy.tabulate(env.spec.enumeration, 0, mode="explore")
    np.testing.assert_allclose(probs.min(axis=1), 0.125, atol=1e-6)
    error = np.sqrt(result.payoffs.m2 / 3999 / 4000)
    assert (np.abs(result.payoffs.mean - _exact(result)) < 5 * error + 1e-9).all()


# ---------------------------------------------------------------------------------------------- 9, 15: counters


@pytest.mark.parametrize(
    "changes",
    [[], ["algorithm.batch_unit=decisions", "response={decisions: 100}"], ["evaluation.payoffs=simulate"]],
    ids=str,
)
def test_counters_count_what_happened(changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """9. Named counters, global over the run: equal to what the worker played for training, evaluation apart. 15. Stored, not shown."""
    watch = Watch(monkeypatch)
    result = go(tmp_path, *changes)
    played = {"env_steps": 0, "decisions": 0, "episodes": 0}
    rows, returns = 0, []
    for request, rollout in watch.rollouts:
        if request.learner is not None:
            assert rollout.trajectories is not None
            rows += rollout.trajectories.num_rows
            played["env_steps"] += rollout.counters["env_steps"]
            played["decisions"] += rollout.counters["learner_decisions"]
            played["episodes"] += len(rollout.episodes.length)
            returns += [row[seat] for row, seat in zip(rollout.episodes.returns, rollout.episodes.seat, strict=True)]
    with Reader(tmp_path) as reader:
        tasks = [task.counters for task in reader.tasks() if task.kind == "train"]
        curve = joined(stored.curve for stored in reader.curves())
        summary, last = reader.summary(), reader.last_generation()
    total = {name: sum(task[name] for task in tasks) for name in tasks[0]}
    assert {name: total[name] for name in played} == played
    assert total["samples"] == rows  # every row was learned from once
    assert total["updates"] == sum(request.learner is not None for request, _ in watch.rollouts)
    assert summary is not None
    assert last is not None
    assert summary.counters == total
    assert last.episodes == result.episodes == total["episodes"]
    assert {name: curve[name][-1] for name in total} == total
    assert curve["n"].sum() == len(returns)
    assert (curve["n"] * np.nan_to_num(curve["mean"])).sum() == pytest.approx(sum(returns))


def test_displayed_numbers_follow_from_stored_ones(tmp_path: Path) -> None:
    """15. NashConv and the meta-strategies' values, again from the policy files and the stored meta-strategies."""
    result = go(tmp_path, "generations=3")
    env = make_env("openspiel/kuhn_poker", num_envs=1)
    exact = ExactEvaluator(env.tree, (0, 1))  # type: ignore[attr-defined]
    with Reader(tmp_path) as reader:
        generations = reader.generations()
    for generation in generations:
        for population in result.populations:
            ref = population[generation.number].ref
            exact.add(ref, load_policy(tmp_path / "policies" / str(ref.population) / f"{ref.policy}.safetensors"))
        found = exact.exploitability(MetaSolution(tuple(np.array(m) for m in generation.marginals), 0.0))
        assert generation.nash_conv == pytest.approx(found.nash_conv, abs=1e-12)
        np.testing.assert_allclose(generation.gains, found.gain, atol=1e-12)
        np.testing.assert_allclose(generation.values, found.value, atol=1e-12)
        assert generation.sizes == (generation.number + 1,) * 2


# ---------------------------------------------------------------------------------------------- 10: every stopper

RESPONSES = {
    "episodes": "{episodes: 60}",
    "decisions": "{decisions: 60}",
    "steps": "{steps: 60}",
    "samples": "{samples: 60}",
    "updates": "{updates: 2}",
    "seconds": "{seconds: 0.01}",
    "win_rate": "{win_rate: {above: 0.05, matches: 30}}",
    "no_improvement": "{no_improvement: 2}",
    "any": "{any: [{updates: 2}, {episodes: 1000}]}",
    "all": "{all: [{updates: 2}, {episodes: 60}]}",
}
RUNS = {
    "episodes": ("{episodes: 100}", "100 episodes are done"),
    "decisions": ("{decisions: 100}", "100 decisions are done"),
    "steps": ("{steps: 100}", "100 env steps are done"),
    "samples": ("{samples: 100}", "100 samples are done"),
    "updates": ("{updates: 5}", "6 of 5 updates are done"),
    "seconds": ("{seconds: 0.01}", "of 0.01 seconds have passed"),
    "generations": ("{generations: 1}", "1 of 1 generations are done"),
    "nash_conv": ("{nash_conv: 5}", "is at most 5"),
    "best_response_gain": ("{best_response_gain: 10}", "best responses gained at most 10"),
    "no_improvement": (
        "{no_improvement: {evaluations: 1, min_delta: 9, of: nash_conv}}",
        "did not improve by more than 9",
    ),
    "any": ("{any: [{generations: 1}, {episodes: 100000}]}", "1 of 1 generations are done"),
    "all": ("{all: [{generations: 1}, {episodes: 100}]}", "episodes are done"),
}


def test_every_stopper_is_here() -> None:
    assert set(RESPONSES) | set(RUNS) == set(STOPPERS)


@pytest.mark.parametrize("name", sorted(RESPONSES))
def test_stoppers_fire_within_a_response(name: str, tmp_path: Path) -> None:
    """10."""
    result = go(tmp_path, f"response={RESPONSES[name]}", "generations=1")
    assert result.stopped_by == "the schedule is complete"


@pytest.mark.parametrize("name", sorted(RUNS))
def test_stoppers_end_a_run(name: str, tmp_path: Path) -> None:
    """10."""
    stop, words = RUNS[name]
    result = go(tmp_path, f"stop={stop}", "generations=50")
    assert words in result.stopped_by
    assert len(result.generations) < 50


# ---------------------------------------------------------------------------------------------- 13, 14


@pytest.mark.parametrize("algorithm", ["ppo", "tabular_q"])
def test_another_seed_another_answer(algorithm: str, tmp_path: Path) -> None:
    """14. (That the same seed gives the same run to the bit is tested in tests/runs.)"""
    changes = [f"algorithm={{kind: {algorithm}}}", "response.episodes=200", "generations=1", "mode=explore"]
    first, second = (go(tmp_path / str(seed), *changes, f"seed={seed}") for seed in (1, 2))
    assert first.nash_conv[0] == second.nash_conv[0]  # nothing random in it
    assert first.nash_conv[1] != second.nash_conv[1]


def test_a_name_does_not_change_the_run(tmp_path: Path) -> None:
    """14. Random streams follow the seed, and neither the folder nor the name."""
    results = [go(tmp_path / folder, f"name={folder}") for folder in ("here", "there")]
    assert results[0].nash_conv == results[1].nash_conv


def test_results_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """14. A retried match or task counts once: every result is recorded twice, and nothing changes."""
    from ludus.metagame.population.agent_manager import AgentManager
    from ludus.schedulers.psro import PSROScheduler

    changes = ["evaluation.payoffs=simulate"]
    once = go(tmp_path / "once", *changes)

    def twice(cls: type, name: str) -> None:
        real: Callable[..., None] = getattr(cls, name)

        def doubled(self: object, *arguments: object) -> None:
            real(self, *arguments)
            real(self, *arguments)

        monkeypatch.setattr(cls, name, doubled)

    twice(AgentManager, "on_result")
    twice(PSROScheduler, "on_result")
    again = go(tmp_path / "twice", *changes)
    assert again.nash_conv == once.nash_conv
    np.testing.assert_array_equal(again.payoffs.count, once.payoffs.count)
    np.testing.assert_array_equal(again.payoffs.mean, once.payoffs.mean)
    assert len(again.populations[0]) == len(once.populations[0])


def test_an_error_in_the_middle_leaves_a_run_to_go_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13. A fault is an error at once, not a hang; what was recorded stays, and the run ends as if nothing had been."""
    whole = go(tmp_path / "whole", "generations=3")
    from ludus.runs.driver import Driver

    real = Driver.checkpoint
    calls = 0

    def failing(self: Driver, training: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, training)

    monkeypatch.setattr(Driver, "checkpoint", failing)
    with pytest.raises(
        RunError, match=r"the disk, or a quota on it, is full: No space left on device\. Make room\. What was"
    ):
        go(tmp_path / "run", "generations=3")
    monkeypatch.undo()
    with Reader(tmp_path / "run") as reader:
        assert len(reader.generations()) == 2
    assert resume(tmp_path / "run", report=False).nash_conv == whole.nash_conv


# ---------------------------------------------------------------------------------------------- the table


def test_the_table_of_invariants_names_tests_that_exist() -> None:
    text = (Path(__file__).parent / "INVARIANTS.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) ", text, re.M) == [str(k) for k in range(1, 16)]
    root = Path(__file__).parents[1]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    for path, test in named:
        assert f"def {test}(" in (root / path).read_text(encoding="utf-8"), f"{path}::{test}"
