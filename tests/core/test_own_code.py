"""Code of the user's own: where it raised, and what it answered. The user's parts of this file are run from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.core.config import Config
from ludus.core.errors import LudusError, ScenarioError, SolverError
from ludus.core.types import AdaptiveMixture, Array, EvaluationTask, MetaSolution, Mixture, PolicyRef, State
from ludus.core.user_code import describe_user_error, user_frames
from ludus.evaluation.run_ratings import rate
from ludus.metagame.population.ratings.base import RatingTable
from ludus.metagame.solvers.registry import solve
from ludus.rollout.opponents import AdaptiveOpponents
from ludus.runs.driver import request_tasks
from ludus.schedulers.response_diversity import diversified_opponents, training_objective
from ludus.schedulers.responses import Target, response_targets
from ludus.storage.reader import Reader
from ludus.testing.meta_solver import zero_sum_view
from ludus.training.stopping import Progress, fraction_done, limit_in_unit, stop_reason
from ludus.training.trainer import Trainer

HERE = __name__
VIEW = zero_sum_view([[1.0, 0.0, 2.0]])  # one policy against three
THIRD = np.full(3, 1 / 3)
FIRST = MetaSolution((np.ones(1), THIRD), 0.0)


@dataclass(frozen=True)
class Answers:
    """A meta-solver, a stopper, a rating and a scheduler, each of which answers what it was made with."""

    answer: Any = None
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Any, *, warm: Any = None, rng: Any) -> Any:
        return self.answer

    def reason(self, progress: Any) -> Any:
        return self.answer

    fraction = limit = update = reason

    def rate(self, payoffs: Any, log: Any) -> Any:
        return self.answer

    def targets(self, payoffs: Any, solution: Any, seats: Any) -> Any:
        return self.answer

    def objective(self, members: Any) -> Any:
        return self.answer

    opponents = targets

    def next_tasks(self, view: Any, free: int) -> Any:
        return self.answer


@dataclass(frozen=True)
class Past:
    """A rule of self-play whose probabilities are too many."""

    reads: ClassVar[bool] = False

    def probabilities(self, scores: Array, rates: Array) -> Array:
        return np.ones(len(scores) + 1)

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores


class Raises(Config):
    """A stopper."""

    setting: ClassVar[str] = "after"
    after: int

    def reason(self, progress: Progress) -> str | None:
        return None if progress.generations < self.after else {}["nothing"]

    def fraction(self, progress: Progress) -> float | None:
        return None

    def limit(self, unit: str) -> int | None:
        return None


def test_an_exception_of_ones_own_is_told_with_class_method_file_and_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    line = Raises.reason.__code__.co_firstlineno + 1
    code = main(["train", "kuhn", f"stop={{'{HERE}:Raises': 1}}", "--run-dir", str(tmp_path / "run")])
    said = capsys.readouterr().err.splitlines()
    assert code == 1
    assert said[-3:] == [
        f"error: Raises.reason raised KeyError: 'nothing' ({__file__}, line {line}). LUDUS_DEBUG=1 shows the whole traceback.",
        f'  File "{__file__}", line {line}, in Raises.reason',
        '    return None if progress.generations < self.after else {}["nothing"]',
    ]
    assert main(["status", str(tmp_path / "run")]) == 0
    state, *_, again = capsys.readouterr().out.splitlines()[1:]
    assert state == f"  state     failed: Raises.reason raised KeyError: 'nothing' ({__file__}, line {line})"
    assert again.startswith("  continue  once that is mended: ludus resume ")
    with Reader(tmp_path / "run") as reader:
        (session,) = reader.sessions()
    assert (session.state, session.error) == ("failed", "KeyError")
    assert session.place == f"Raises.reason ({__file__}, line {line})"


class Odd(Answers):
    def solve(self, *args: Any, **keywords: Any) -> Any:
        raise ValueError("odd")


def test_whose_fault_it_is() -> None:
    with pytest.raises(LudusError) as ours:
        solve(Answers(), VIEW, rng=np.random.default_rng(0))
    assert describe_user_error(ours.value) is None  # Ludus's own code lies innermost
    with pytest.raises(ValueError, match="odd") as caught:
        solve(Odd(), VIEW, rng=np.random.default_rng(0))
    theirs = caught.value
    assert (describe_user_error(theirs) or "").startswith(f"Odd.solve raised ValueError: odd ({__file__}, line ")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = theirs
    assert user_frames(wrapped) == user_frames(theirs)
    remote = RuntimeError("wrapped")
    remote.__cause__ = Exception(
        f'  File "{solve.__code__.co_filename}", line 3, in solve\n  File "/home/me/own.py", line 7, in run\n'
    )
    assert [(f.file, f.line, f.name) for f in user_frames(remote)] == [("/home/me/own.py", 7, "run")]
    carried = RuntimeError("an environment raised ValueError")
    carried.add_note(  # as of a subprocess, whose error became one of Ludus's there
        "In subprocess 0:\nTraceback (most recent call last):\n"
        f'  File "{solve.__code__.co_filename}", line 3, in solve\n  File "/home/me/own.py", line 7, in step\nValueError: x\n\n'
        "The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        f'  File "{solve.__code__.co_filename}", line 9, in solve\nludus.core.errors.EnvError: an environment\n'
    )
    assert [(f.file, f.line, f.name) for f in user_frames(carried)] == [("/home/me/own.py", 7, "step")]


def _answer(*marginals: Any, **more: Any) -> MetaSolution:
    return MetaSolution(tuple(marginals), **{"gap": 0.0, **more})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "answered None; expected a MetaSolution"),
        (_answer(np.ones(1), 2 * THIRD), "for player 1 .*, which sums to 2.0; expected 1"),
        (_answer(np.ones(1), np.array([1.5, -0.5, 0.0])), "for player 1 .*expected finite numbers >= 0"),
        (_answer(np.array([np.nan]), THIRD), "for player 0 .*expected finite numbers >= 0"),
        (_answer(np.ones(1), np.full(2, 0.5)), r"for player 1 an array of shape \[2\]; expected \[3\]"),
        (_answer(np.ones(1), [1.0, 0.0, 0.0]), "for player 1 .* a list; expected an array"),
        (_answer(np.ones(1), THIRD.astype(np.float32)), "for player 1 an array of dtype float32; expected float64"),
        (_answer(np.ones(1)), "expected one array for each of 2 players"),
        (_answer(np.ones(1), THIRD, gap=-1.0), "answered the gap -1.0"),
        (_answer(np.ones(1), THIRD, gap=None), "answered the gap None"),
        (_answer(np.ones(1), THIRD, warm={"last": [object()]}), r"an object for warm\['last'\]\[0\]; expected arrays of"),
        (_answer(np.ones(1), THIRD, warm=np.array([None])), "an array of dtype object for warm; expected arrays of"),
        (MetaSolution(None, 0.0), "answered neither of marginals and joint"),
        (_answer(np.ones(1), THIRD, joint=THIRD[None]), "answered both of marginals and joint"),
        (MetaSolution(None, 0.0, joint=THIRD), r"for joint an array of shape \[3\]; expected \[1, 3\]"),
    ],
)  # fmt: skip
def test_custom_meta_solver_with_wrong_result_raises(answer: Any, words: str) -> None:
    with pytest.raises(
        SolverError, match=f"meta-solver {HERE}:Answers {'' if words.startswith('answered') else '.*'}{words}"
    ):
        solve(Answers(answer), VIEW, rng=np.random.default_rng(0))


def test_custom_stopper_with_wrong_result_raises() -> None:
    now = Progress()
    assert stop_reason(Answers("enough"), now) == "enough"
    assert fraction_done(Answers(1.5), now) == 1.0
    assert limit_in_unit(Answers(np.int64(7)), "episodes") == 7
    for asked, answer in (
        (stop_reason, True),
        (stop_reason, ""),
        (fraction_done, "half"),
        (fraction_done, float("nan")),
    ):
        with pytest.raises(ScenarioError, match=rf"stopper {HERE}:Answers\.(reason|fraction) answered"):
            asked(Answers(answer), now)
    with pytest.raises(ScenarioError, match=r"Answers\.limit\('episodes'\) answered 2.5; expected a whole number"):
        limit_in_unit(Answers(2.5), "episodes")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An opponents' rule that gives its first entry too much."""

    def start(self, probs: Array) -> State:
        return {"probs": probs}

    def update(self, state: State, evidence: Any) -> State:
        return state

    def probs(self, state: State) -> Array:
        return np.asarray(state["probs"] + np.eye(len(state["probs"]))[0])


def test_custom_opponent_rule_with_wrong_result_raises() -> None:
    refs = [PolicyRef(1, f"1-{k}", 0) for k in range(2)]
    mixture = Mixture.product({1: (refs, [0.25, 0.75])})
    moving = AdaptiveOpponents(AdaptiveMixture(mixture, f"{HERE}:Rule"))
    with pytest.raises(ScenarioError, match=f"opponents' rule {HERE}:Rule answered .*, which sums to 2.0; expected 1"):
        moving.mixture(lambda ref: ref)


def test_custom_self_play_rule_with_wrong_result_raises(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["train", "kuhn", "scenario=self_play", "algorithm=ppo", "response.episodes=20", "generations=2"]
    assert main([*line, f"past={HERE}:Past", "latest=0.5", "--run-dir", str(tmp_path / "run")]) == 2
    assert f"rule {HERE}:Past answered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "answered None; expected one or several Target"),
        ((), r"answered \(\); expected one or several Target"),
        ((Target((1,), FIRST, np.zeros(1)),), r"a target for the seats \(1,\); expected some of \[0\]"),
        ((Target((0,), MetaSolution((np.ones(1), 2 * THIRD), 0.0), np.zeros(1)),), "a target against for player 1 .* sums to 2"),
        ((Target((0,), FIRST, np.zeros(3)),), "with scores .* for each of the population's 1 policies"),
        ((Target((0,), FIRST, np.zeros(1), improves=1),), "improves policy 1; expected one of 0 to 0"),
    ],
)  # fmt: skip
def test_custom_response_rule_with_wrong_result_raises(answer: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=rf"response rule {HERE}:Answers .*{words}"):
        response_targets(Answers(answer), VIEW, FIRST, (0,))


def test_custom_diversity_with_wrong_result_raises() -> None:
    for call in (lambda rule: training_objective(rule, ()), lambda rule: diversified_opponents(rule, None, VIEW, ())):
        assert call(Answers(None)) is None
        with pytest.raises(ScenarioError, match=rf"diversity {HERE}:Answers answered 7 for .*, or None"):
            call(Answers(7))


def test_custom_learner_with_wrong_result_raises() -> None:
    for answer, words in ((None, "None for 'metrics'"), ({"loss": "small"}, "'small' for 'loss'")):
        trainer: Any = object.__new__(Trainer)
        trainer._learner = Answers(answer)
        with pytest.raises(ScenarioError, match=f"learner {HERE}:Answers.update answered {words}"):
            trainer._checked(answer)


def test_custom_rating_with_wrong_result_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (
        [1.0, 2.0, 3.0, 4.0],
        RatingTable("own", "points", (1, 3), *[np.zeros(3)] * 3, np.zeros(3, np.int64)),
    ):
        monkeypatch.setattr("ludus.evaluation.run_ratings.rater", lambda name, answer=answer: Answers(answer))
        with pytest.raises(ScenarioError, match=f"rating {HERE}:Answers answered"):
            rate("own", VIEW)


def test_custom_scheduler_with_wrong_result_raises() -> None:
    view: Any = type("View", (), {"populations": ((), ())})
    task = EvaluationTask("e", 0)
    assert request_tasks(Answers([task]), view, free=1) == [task]  # type: ignore[arg-type]
    for answer, words in ((None, "answered None"), ([task, "e"], "expected a list of"), ([task] * 2, "at most 1")):
        with pytest.raises(ScenarioError, match=f"scheduler {HERE}:Answers.*{words}"):
            request_tasks(Answers(answer), view, free=1)  # type: ignore[arg-type]


def test_a_run_of_which_every_response_failed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    algorithm = "algorithm={kind: ppo, learning_rate: 1.0e+30, max_gradient_norm: 1.0e+30}"
    run = ["train", "kuhn", "generations=1", algorithm, "response.episodes=100", "--run-dir", str(tmp_path / "run")]
    assert main(run) == 3
    out, err = capsys.readouterr()
    assert "  failed          every response; the first: PPO update" in out
    assert err.endswith(
        "error: every response of this run failed; its policies are unchanged. The report lists the failures.\n"
    )
    assert main(["status", str(tmp_path / "run")]) == 0
    assert "state     failed: every response failed; the first: PPO update 1" in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "run")]) == 3
