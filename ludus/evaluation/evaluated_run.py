"""Common start of all evaluations of a stored run: the run, and a runner of its policies. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, PolicyRef
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.matches import MatchRunner
from ludus.evaluation.policies import NamedPlayers
from ludus.policies.base import Policy
from ludus.rollout.manager import manage
from ludus.runtime.inprocess import build_runtime
from ludus.storage.stored_run import StoredRun, open_run

FRESH = "fresh"
"""A block of episodes that no run plays: what a run was steered by does not count again in its final figures."""

Tell = Callable[[int, int], None]
"""(episodes that are done, of how many)."""


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """Fields that every result about a stored run begins with.

    Attributes:
        run_dir: Directory of the run.
        env: Id of its environment.
        generation: The generation that was asked about, or the last complete one.
    """

    run_dir: Path
    env: str
    generation: int


def facts_of(run: StoredRun, of: str = "") -> tuple[Path, str, int]:
    """Return the fields of `RunResult`; of: whose exploitability is asked for, "@12" say."""
    what = of.removeprefix("@")
    return run.folder, run.env.id, int(what) if what.isdecimal() else run.generation


def require_two_player_zero_sum(spec: EnvSpec, measure: str, advice: str) -> None:
    """Raise ScenarioError for other games. measure: what is of such games alone; advice: what to do instead."""
    if spec.num_players != 2 or not spec.zero_sum:
        raise ScenarioError(
            f"{measure} is of two-player zero-sum games; {spec.id} has {spec.num_players} player{'s' * (spec.num_players > 1)}"
            f"{'' if spec.zero_sum else ' and is general-sum'}. {advice}"
        )


class OpenRun:
    """A stored run in its environment, the game from its start. Raises RunError for an unreadable run.

    stored: the run. spec, tree: of the game; None unless it is compiled. named: policies by name. player: plays policies in it.
    """

    def __init__(self, folder: Path | str, *, seed: int | None = None) -> None:
        """seed: key of what is played; default: the run's own."""
        self.stored = open_run(folder)
        env = self.stored.env.played.make()
        self.spec, self.tree = env.spec, find_tree(env)
        self.named = NamedPlayers(self.stored, self.spec)
        self.rollouts = manage(build_runtime("inprocess"), env)
        self.player = MatchRunner(self.rollouts, self.policy, seed=self.stored.info.seed if seed is None else seed)

    def policy(self, ref: PolicyRef) -> Policy:
        """A policy of the run, or one that was named."""
        return self.named.policy(ref)

    def close(self) -> None:
        """Close the environments."""
        self.rollouts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
