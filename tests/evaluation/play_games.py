"""Games for tests of tables: of an environment, with random policies, and no run behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from ludus.apps.episodes.human_policy import HumanPolicy
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.apps.episodes.recording import one_environment
from ludus.apps.play.game_sessions import GameSession, MoveRequest, SeatRequest
from ludus.apps.play.run_game import RunGame
from ludus.core.types import PolicyRef
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.envs.wrappers.registry import wrap
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec


class AnyGame(RunGame):
    """A `RunGame` without a run: whoever is no person plays at random."""

    def __init__(
        self,
        env: Environment | Callable[[], VectorEnv],
        *,
        wrappers: Sequence[Mapping[str, object]] = (),
        run: Any = None,
    ) -> None:
        self.name, self._wrappers = "tests", wrappers
        self.run = run or cast(Any, SimpleNamespace())
        self.tree, self.discount = None, None
        self._env = env
        made = self._make()
        self.spec = wrap(made, wrappers).spec
        made.close()

    def _make(self, rendering: bool = False) -> VectorEnv:
        return one_environment(self._env, rendering=rendering) if isinstance(self._env, Environment) else self._env()

    def episode(
        self, who: Sequence[str], *, seed: int, people: Mapping[int, HumanPolicy] | None = None, steps: int = 2000
    ) -> PlayedEpisode:
        del who
        people = people or {}
        policies: list[Policy] = [
            people[p] if p in people else build_policy(random_spec(self.spec.agents_of(p)[0].action), {})
            for p in range(self.spec.num_players)
        ]
        return PlayedEpisode(
            self._make,
            policies,
            seed=seed,
            steps=steps,
            wrappers=self._wrappers,
            shown=lambda: self._make(rendering=True),
            name=lambda ref: ref.policy,
            waits=lambda due: any(p in people and not people[p].ready for p in due),
        )


def openspiel(name: str, **options: Any) -> AnyGame:
    """One of OpenSpiel's games, not compiled."""
    return AnyGame(Environment(id=f"openspiel/{name}", num_envs=1, tree="off", options=options))


def people(game: AnyGame, **keywords: Any) -> GameSession:
    """A table at which people sit everywhere."""
    wishes = [SeatRequest(who="person", name=f"P{p}") for p in range(game.spec.num_players)]
    return GameSession("t", game, wishes, **{"rated": False, **keywords})


def choose(table: GameSession, player: int, *actions: int | Sequence[float]) -> None:
    """Each agent's action, from the newest frame."""
    number = table.view(player)["frame"]["number"]
    table.move(player, [MoveRequest(player=player, agent=k, action=a) for k, a in enumerate(actions)], number)


def ref(name: str, population: int = 0) -> PolicyRef:
    return PolicyRef(population, name, mode="greedy")
