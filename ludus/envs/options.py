"""The options of an environment, as a scenario has them: plain data, which can be read without loading what it names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ludus.core.config import Config
from ludus.envs.base import VectorEnv


def _switch(value: Any) -> Any:
    """YAML reads a bare `on` and `off` as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


Switch = BeforeValidator(_switch)


def _wrappers(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple({"kind": item} if isinstance(item, str) else item for item in items)


def _known_wrappers(value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    if value:
        from ludus.envs.wrappers.registry import check_wrapper  # a scenario can be read without loading what it runs on

        for wrapper in value:
            check_wrapper(wrapper)
    return value


class Environment(Config):
    """id: `family/name` or `module:Class`. num_envs: environments stepped together; `runtime.shards` cuts them into shards, so
    results depend on it. tree: compile the game into arrays where it can be enumerated within `node_limit` nodes. workers: subprocesses
    that share slow environments out. deadline: seconds that a step may take there. restarts: how many faults of environments are repaired
    before the run ends. wrappers: {kind: name, …}, the innermost first. options: the family's own."""

    id: str
    num_envs: int = Field(1024, ge=1)
    tree: Annotated[Literal["auto", "on", "off"], Switch] = "auto"
    node_limit: int = Field(1_000_000, ge=1)
    workers: int = Field(0, ge=0)
    deadline: float | None = Field(None, gt=0)
    restarts: int = Field(0, ge=0)
    wrappers: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_wrappers), AfterValidator(_known_wrappers)] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def played(self) -> Environment:
        """The game from its start, as matches after training are played: without the random `openings` of OpenSpiel's."""
        options = {key: value for key, value in self.options.items() if key != "openings"}
        return self.model_copy(update={"options": options}) if self.id.startswith("openspiel/") else self

    def make(self, *, num_envs: int | None = None, **options: Any) -> VectorEnv:
        """The vector of environments. Raises what `make_env` raises. num_envs, options: in place of its own."""
        from ludus.envs.registry import make_env  # a scenario can be read without loading what it runs on

        return make_env(
            self.id,
            num_envs=num_envs or self.num_envs,
            tree=self.tree,
            node_limit=self.node_limit,
            workers=self.workers,
            deadline=self.deadline,
            restarts=self.restarts,
            wrappers=self.wrappers,
            **{**self.options, **options},
        )
