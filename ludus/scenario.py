"""What to run: environment, oracle, meta-solver, schedule, limits. Plain data that a YAML file or Python gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer

from ludus.algorithms.registry import ALGORITHMS
from ludus.config import Config, from_yaml, override, to_yaml
from ludus.envs.base import VectorEnv
from ludus.errors import ConfigError, UnknownName
from ludus.meta_solvers.registry import META_SOLVERS
from ludus.parts import build_part, dump_part
from ludus.population.base import populations_of
from ludus.scenario_runtime import RuntimeChoice
from ludus.schedulers.warm_start import WarmStart
from ludus.stopping.stoppers import dump_stopper, parse_stopper
from ludus.types import EnvSpec


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
    """id: `family/name` or `module:Class`. num_envs: environments stepped together; they are also the shard of DESIGN §3, so
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


class BesideTraining(Config):
    """A process that plays every `every`-th version of a learner against its opponents while it learns. num_envs: of its own."""

    every: int = Field(10, ge=1)
    episodes: int = Field(100, ge=2)
    num_envs: int = Field(16, ge=1)


class Evaluation(Config):
    """payoffs: exact where the game tree allows (auto), or by play with `episodes` per profile. exploitability: likewise, or off.
    beside: scores of learners while they train, or none."""

    payoffs: Literal["auto", "exact", "simulate"] = "auto"
    episodes: int = Field(1000, ge=2)
    exploitability: Annotated[Literal["auto", "exact", "off"], Switch] = "auto"
    beside: BesideTraining | None = None


class Checkpoints(Config):
    """Barriers: at the start of every `generations`-th generation and every `iterations` training iterations inside a response.
    They are part of the schedule: a run without a kill passes them too. keep: complete checkpoints left on disk."""

    generations: int = Field(1, ge=1)
    iterations: int = Field(200, ge=1)
    keep: int = Field(2, ge=1)


def _name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
        raise ConfigError(f"{value!r} was given; use letters, digits, - _ and ., a letter or digit first.")
    return value


def _environment(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _runtime(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _rules(value: Any) -> Any:
    rules = value if isinstance(value, list | tuple) else (value,)
    return tuple({"source": rule} if isinstance(rule, str) else rule for rule in rules)


Oracle = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("oracle", v, ALGORITHMS)),
    PlainSerializer(lambda part: dump_part(part, ALGORITHMS)),
]
Solver = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("meta-solver", v, META_SOLVERS)),
    PlainSerializer(lambda part: dump_part(part, META_SOLVERS)),
]
Stop = Annotated[
    Any,
    BeforeValidator(lambda v: None if v is None else parse_stopper(v)),
    PlainSerializer(lambda stop: None if stop is None else dump_stopper(stop)),
]


class PSRO(Config):
    """Policy-Space Response Oracles (Lanctot et al. 2017).

    env: an id or `Environment`. oracle: what trains or computes a best response, a registered name or `module:Class` with options.
    response: when a response's training stops, {episodes: 20000} say; a computed oracle needs none. generations: best responses per
    population. stop: ends the run earlier. warm_start: what a new policy starts from, one rule or several. mode: how the members of
    a population are played; against a fixed mixture some best response is deterministic, so greedy loses nothing. share: one population for
    interchangeable players (auto: where the environment says that they are). Generation 0 plays uniformly at random.
    """

    env: Annotated[Environment, BeforeValidator(_environment)]
    oracle: Oracle = "ppo"
    meta_solver: Solver = "nash"
    generations: int = Field(20, ge=0)
    response: Stop = Field(default_factory=lambda: {"episodes": 20_000})
    stop: Stop = None
    warm_start: Annotated[tuple[WarmStart, ...], BeforeValidator(_rules)] = (WarmStart(),)
    mode: Literal["explore", "greedy"] = "greedy"
    share: Literal["auto", "never"] = "auto"
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    runtime: Annotated[RuntimeChoice, BeforeValidator(_runtime)] = RuntimeChoice()
    seed: int = Field(0, ge=0)
    name: Annotated[str, AfterValidator(_name)] = ""

    model_config = ConfigDict(validate_default=True)

    def to_yaml(self) -> str:
        """The scenario in full; `load_scenario` of it gives an equal one."""
        return to_yaml({"scenario": "psro", **self.model_dump(mode="json")})

    def with_shards(self) -> PSRO:
        """With the number of shards written out, so that a run keeps it when it goes on with other workers."""
        return self.model_copy(update={"runtime": self.runtime.model_copy(update={"shards": self.runtime.pieces})})

    def population(self, env: EnvSpec) -> tuple[int, ...]:
        """[P] index of each player's population."""
        return populations_of(env, share=self.share == "auto")

    def check(self, env: EnvSpec) -> None:
        """Raises ScenarioError where parts that are fine alone do not fit together."""
        from ludus.scenario_check import check  # a scenario can be read without loading what it runs on

        check(self, env)


Scenario = PSRO
SCENARIOS: Mapping[str, type[PSRO]] = {"psro": PSRO}


def load_scenario(name_or_path: str, overrides: list[str] | None = None, seed: int | None = None) -> Scenario:
    """A preset or YAML file with `key=value` overrides. Raises ConfigError with the nearest right name."""
    source, text = _read(name_or_path)
    return parse_scenario(text, overrides, seed, source=source)


def parse_scenario(
    text: str, overrides: list[str] | None = None, seed: int | None = None, *, source: str = ""
) -> Scenario:
    """The scenario that YAML text describes. source: the file it was read from."""
    data = from_yaml(text, what="the scenario", source=source)
    if not isinstance(data, dict):
        given = "nothing" if data is None else type(data).__name__
        raise ConfigError(
            f"a scenario is a mapping of keys to values; given {given}{f' ({source})' if source else ''}. "
            "`ludus config PRESET` prints one."
        )
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"unknown key {wrong[0]!r}: the keys of a scenario are words such as env and oracle.")
    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    data = override({**_parts(PSRO), **data}, changes, names={"env": "id"})
    kind = str(data.pop("scenario", "psro"))
    if kind not in SCENARIOS:
        raise UnknownName("scenario", kind, SCENARIOS)
    return SCENARIOS[kind](**data)


def _parts(scenario: type[PSRO]) -> dict[str, Any]:
    """The parts that a scenario has by default, so that an override such as `oracle.batch=500` has something to change."""
    return {name: scenario.model_fields[name].default for name in ("oracle", "meta_solver")}


def list_presets() -> dict[str, str]:
    """name -> what it is (the first line of its file)."""
    files = {p.name.removesuffix(".yaml"): p for p in _presets().iterdir() if p.name.endswith(".yaml")}
    return {name: files[name].read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name in sorted(files)}


def _presets() -> Any:
    return resources.files("ludus") / "presets"


def _read(name_or_path: str) -> tuple[str, str]:
    """(file, text)"""
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        try:
            return name_or_path, Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(
                f"scenario file {name_or_path!r} cannot be read: {detail}. `ludus list presets` shows what is there by name."
            ) from error
    presets = list_presets()
    if name_or_path not in presets:
        raise UnknownName("preset", name_or_path, presets, hint="A scenario of your own is a path ending in .yaml")
    return f"{name_or_path}.yaml", str((_presets() / f"{name_or_path}.yaml").read_text(encoding="utf-8"))
