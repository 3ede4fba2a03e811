"""Matches of members that are there already, played while others train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from ludus.core.errors import LudusError, PartDied
from ludus.core.types import Match, PolicyRef
from ludus.evaluation.matches import EarlyMatches, MatchProfile, MatchRunner
from ludus.rollout.manager import RolloutManager
from ludus.rollout.rollouts import Pending
from ludus.runs import scenario_check
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.runtime.base import ignore
from ludus.storage.reader import Reader

PSRO = """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: ppo, batch: 24, hidden: [8]}
response: {episodes: 96}
evaluation: {payoffs: simulate, episodes: 40, exploitability: off}
generations: 3
"""


def profile(number: int, block: int = 0) -> MatchProfile:
    return MatchProfile((number, 0), (PolicyRef(0, f"p{number}"), PolicyRef(1, "q0")), block)


def match_of(profile: MatchProfile) -> Match:
    return cast("Match", f"match {profile.index[0]}")


@dataclass
class Player:
    """Plays a match as soon as `may` names it."""

    dies: bool = False
    may: set[int] = field(default_factory=set)
    begun: list[int] = field(default_factory=list)
    closed: int = 0

    def start(self, profile: MatchProfile, episodes: int) -> Pending:
        assert episodes == 40
        self.begun.append(profile.index[0])
        return cast("Pending", profile)

    def is_done(self, pending: Pending) -> bool:
        return cast("MatchProfile", pending).index[0] in self.may

    def finish(self, profile: MatchProfile, pending: Pending, *, on_progress: object) -> Match:
        assert pending is cast("Any", profile)
        if self.dies:
            raise PartDied("evaluator 0 has died.")
        return match_of(profile)

    def close(self) -> None:
        self.closed += 1


def early(*players: Player, tell: Callable[[str], None] = ignore) -> Any:
    return EarlyMatches(cast("list[MatchRunner]", list(players)), 40, tell=tell)


def test_begun_from_the_last_and_asked_for_from_the_first() -> None:
    one, two = Player(), Player()
    matches = early(one, two)
    matches.expect(profile(k) for k in range(5))
    assert (one.begun, two.begun) == ([4], [3])
    one.may = {4, 2}
    matches.poll()
    assert (one.begun, two.begun) == ([4, 2], [3])
    assert not matches.has(profile(0)), "nobody has begun it: who asks plays it"
    assert not matches.has(profile(4, block=1)), "another block has other luck"
    matches.poll()
    one.may = {4, 2, 1}
    matches.poll()
    assert one.begun == [4, 2, 1], "0 was asked for"
    assert [matches.has(profile(k)) for k in (2, 3, 4)] == 3 * [True]
    assert [matches.take(profile(k)) for k in (2, 3, 4)] == ["match 2", "match 3", "match 4"], "3 was waited for"
    assert not matches.has(profile(2)), "a match is given once"
    matches.close()
    matches.close()
    assert (one.closed, two.closed) == (1, 1)


def test_matches_no_longer_expected_are_not_started() -> None:
    one = Player()
    matches = early(one)
    matches.expect([profile(0), profile(1)])
    matches.expect([profile(1), profile(2)])
    for done in ({1}, {1, 2}):
        one.may = done
        matches.poll()
    assert one.begun == [1, 2], "1 was begun once, and 0 is expected no more"


def test_one_that_has_died_too_often_plays_no_more_and_loses_nothing() -> None:
    told = list[str]()
    one, two = Player(dies=True), Player(may={1})
    matches = early(one, two, tell=told.append)
    matches.expect([profile(0), profile(1), profile(2)])
    assert (one.begun, two.begun) == ([2], [1])
    one.may = {2}
    matches.poll()
    assert (one.closed, two.begun) == (1, [1, 0])
    assert told == [
        "one process fewer plays matches while others train: evaluator 0 has died. The run goes on; others play them."
    ]
    assert matches.take(profile(2)) is None
    assert matches.take(profile(1)) == "match 1"


def test_a_player_that_is_stuck_for_good_is_looked_at_no_more() -> None:
    """`poll` only looks in; `finish` then raises, as it does of one that died."""

    class Stuck:
        def done(self, pending: Any, *, at_least: int, timeout: float | None) -> Any:
            assert (at_least, timeout) == (0, 0.0)
            raise PartDied("evaluator 0 has made no step for 600 seconds.")

    player = MatchRunner(cast("RolloutManager", Stuck()), cast("Any", None), seed=0)
    assert player.is_done(cast("Pending", "some"))


# ---------------------------------------------------------------------------------------------- runs


def log_of(folder: Path) -> list[tuple[Any, ...]]:
    with Reader(folder) as reader:
        return [(m.id, m.profile, m.mean.tolist(), m.m2.tolist(), m.wins) for m in reader.counted()]


@pytest.mark.slow
def test_children_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(parse_scenario(PSRO), run_dir=tmp_path / "without", report=False)
    taken = list[Any]()
    take = EarlyMatches.take

    def taking(self: EarlyMatches, profile: MatchProfile, **hears: Any) -> Match | None:
        taken.append(take(self, profile, **hears))
        return cast("Match | None", taken[-1])

    monkeypatch.setattr(EarlyMatches, "take", taking)
    run(parse_scenario(PSRO, ["evaluation.workers=2"]), run_dir=tmp_path / "with", report=False)
    assert log_of(tmp_path / "with") == log_of(tmp_path / "without")
    assert len(taken) >= 3
    assert None not in taken


def test_where_nothing_would_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RuntimeChoice, "check", lambda self: None)  # no GPU is here
    for changes, why in (
        (["evaluation.payoffs=auto"], "computed from its tree"),
        (["scenario=efficient_psro", "rule=hedge"], "efficient_psro plays none for payoffs"),
        (["scenario=self_play"], "self_play asks for few of them. Leave it out, or set cells=all"),
        (["scenario=pipeline_psro"], r"pipeline_psro asks for few of them. Leave it out\.$"),
        (["evaluation.adaptive={}"], "adaptive evaluation decides as it goes"),
        (["runtime.device=cuda"], "act on a GPU"),
    ):
        with pytest.raises(LudusError, match=why):
            run(parse_scenario(PSRO, ["evaluation.workers=1", *changes]))


@pytest.mark.parametrize(
    ("changes", "all_of_them"),
    [
        (["scenario=pfsp"], True),
        (["scenario=pfsp", "latest=1"], False),
        (["scenario=self_play", "meta_solver=nash"], True),
        (["scenario=self_play", "cells=all"], True),
        (["scenario=self_play", "latest=0.8", "past=prioritised"], True),
        (["scenario=self_play", "latest=1.0", "past=prioritised"], False),
        (["scenario=neupl"], False),
        (["scenario=neupl", "cells=all"], True),
        (["scenario=xdo"], False),
        (["scenario=xdo", "cells=all"], True),
        (["scenario=league"], False),
        (["scenario=odo"], True),
    ],
)
def test_who_asks_for_matches_of_new_members_with_all(changes: list[str], all_of_them: bool) -> None:
    """Others are refused workers. What they read by default may be all, too."""
    assert parse_scenario(PSRO, changes).asks_for_all == all_of_them


def test_where_a_gpu_may_be_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children see none: the same match would differ by who plays it."""
    monkeypatch.setattr(scenario_check, "gpu_count", lambda: 1)
    with pytest.raises(LudusError, match=r"device=auto policies may act on a GPU.* give runtime\.acting=cpu"):
        run(parse_scenario(PSRO, ["evaluation.workers=1"]))
