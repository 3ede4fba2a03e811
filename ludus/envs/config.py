"""The options of an environment, as a scenario has them: plain data, which can be read without loading what it names. From Python also an
object, or a function that makes one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from ludus.core.config import LONGEST, Config, is_stored
from ludus.core.errors import ConfigError
from ludus.core.types import EnvSpec
from ludus.envs.base import VectorEnv
from ludus.envs.families import EXPECTED, FAMILIES, UNNAMED, UserEnvObject, describe_source, importable
from ludus.envs.game_facts import GameFacts, file_digests, player_facts


def _switch(value: Any) -> Any:
    """Convert true and false to "on" and "off": YAML reads a bare `on` and `off` so."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


Switch = BeforeValidator(_switch)


def _with_module(id: str) -> str:
    """Return a game of OpenSpiel's that a module of the user's has registered, with that module: other processes import it by that."""
    if not id.startswith("openspiel/") or ":" in id.partition("(")[0] or sys.modules.get("pyspiel") is None:
        return id
    from ludus.envs.openspiel.games import registered_here  # a scenario can be read without loading what it runs on

    return registered_here(id)


def with_import(env: Any, module: Any) -> Any:
    """Return an environment, in whatever form `Environment.of` takes, that is looked up once this module has been imported. Raises
    ConfigError for one that is not looked up in a registry."""
    fields = Environment.of(env)
    if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"import: {module!r} was given; the name of a module was expected, my_games say.")
    if isinstance(fields, Environment):
        return fields.model_copy(update={"id": _after_import(fields.id, module)})
    return {**fields, "id": _after_import(str(fields.get("id", "")), module)}


def _after_import(id: str, module: str) -> str:
    family, _, name = id.partition("/")
    before, colon, _ = name.partition("(")[0].rpartition(":")
    if family not in ("gymnasium", "openspiel") or (colon and before != module):
        raise ConfigError(
            f"import: {module!r} was given with the environment {id!r}. A module is imported for what it registers, gymnasium/ID or "
            "openspiel/NAME; a class or function of your own is named module:Class. Leave import out."
        )
    return id if colon else f"{family}/{module}:{name}"


def _wrappers(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple({"kind": item} if isinstance(item, str) else item for item in items)


def _known_wrappers(value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    if value:
        from ludus.envs.wrappers.registry import check_wrapper  # a scenario can be read without loading what it runs on

        for wrapper in value:
            check_wrapper(wrapper)
    return value


def _refuse_own_fields(value: dict[str, Any]) -> dict[str, Any]:
    """Raise ConfigError for a field of `Environment` among the options."""
    if own := sorted(Environment.model_fields.keys() & value.keys()):
        raise ConfigError(f"env.options.{own[0]} was given, and that is no option. Give env.{own[0]}.")
    return value


def _importable_teams(value: dict[str, Any]) -> dict[str, Any]:
    """Return a function as `teams` by its name, under which every process and file finds it."""
    teams = value.get("teams")
    if not callable(teams):
        return value
    import_name = importable(teams)
    if import_name is None:
        name = getattr(teams, "__qualname__", repr(teams))
        raise ConfigError(
            f"options.teams={name} was given, a function that no file can name. Put it into a module; a scenario then names it "
            "module:function."
        )
    return {**value, "teams": import_name}


SIDES = ("teams", "zero_sum", "utility_range", "symmetry", "state", "determinism", "statistics", "render")
"""Options that many families have, and no key of a scenario is called."""
NEVER_SEEN = frozenset({"batch_size", "determinism", "render", "render_mode", "state", "threads"})
"""Options that leave a match as it is: its speed, pictures of it, what critics see."""


@cache
def unseen_options() -> frozenset[str]:
    """Return the options that leave what a player sees and does in a decision as it is: these may also change its rewards, and what is
    counted and said of a match."""
    paid = (family.shaping for family in FAMILIES.values())
    return NEVER_SEEN.union({"statistics", "symmetry", "utility_range", "zero_sum"}, *paid)


class Environment(Config):
    """An environment and how it is stepped, as a scenario has them.

    Attributes:
        id: `family/name`, or `module:Class`.
        num_envs: Number of environments that are stepped together. `runtime.shards` splits them, so that results depend on it.
        tree: Whether the game is compiled into arrays, which is possible where it can be enumerated within `node_limit` nodes.
        node_limit: Nodes of the largest tree that is compiled.
        fast: Whether a game of OpenSpiel whose tree is not compiled is played by its rules as arrays, where there are any; episodes are the
            same. "off" for stored runs that began before that.
        workers: Number of subprocesses that slow environments are distributed over.
        deadline: Seconds without an answer to a step after which a subprocess of `workers` is killed; None: no limit.
            (`runtime.deadline` is of a worker of the run, `runtime.bots.deadline` of a bot's move.)
        restarts: Number of faults of environments that are repaired before the run ends.
        wrappers: {kind: name, …}, the innermost first.
        options: The family's own.
        source: From Python, in place of `id`: a class, a function that makes an environment, or an environment. What can be imported gets
            the id `module:name`. What cannot (a lambda, an object, a definition in the script itself) is in no file: such a run is resumed
            only with it, by `ludus.resume(run, env=…)`, and other commands cannot play it.
    """

    id: Annotated[str, AfterValidator(_with_module)]
    num_envs: int = Field(1024, ge=1)
    tree: Annotated[Literal["auto", "on", "off"], Switch] = "auto"
    node_limit: int = Field(1_000_000, ge=1)
    fast: Annotated[Literal["auto", "on", "off"], Switch] = Field(
        default_factory=lambda: "off" if is_stored() else "auto"
    )
    workers: int = Field(0, ge=0)
    deadline: float | None = Field(None, gt=0, le=LONGEST)
    restarts: int = Field(0, ge=0)
    wrappers: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_wrappers), AfterValidator(_known_wrappers)] = ()
    options: Annotated[dict[str, Any], AfterValidator(_refuse_own_fields), AfterValidator(_importable_teams)] = Field(
        default_factory=dict
    )
    source: Any = Field(None, exclude=True, repr=False)
    _game: GameFacts | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _beside_options(cls, values: Any) -> Any:
        """Raise ConfigError for an option that is not among `options`."""
        known = SIDES if isinstance(values, Mapping) else ()
        if beside := [name for name in known if name in values and name not in cls.model_fields]:
            raise ConfigError(
                f"{beside[0]} was given outside the options of the environment; it is one of them. Give env.options.{beside[0]}."
            )
        return values

    @model_validator(mode="before")
    @classmethod
    def _from_source(cls, values: Any) -> Any:
        if (
            not isinstance(values, Mapping)
            or values.get("source") is None
            or isinstance(values["source"], UserEnvObject)
        ):
            return values
        if "id" in values:
            raise ConfigError(f"id={values['id']!r} and source were given, which are one too many. Leave one out.")
        return {**values, **describe_source(values["source"], values.get("num_envs"))}

    @classmethod
    def of(cls, value: Any) -> Any:
        """Return what a scenario's `env` may be: options, an id, or what `source` takes; options are passed on as they are."""
        if value is None:
            raise ConfigError(f"nothing was given; expected {EXPECTED}.")
        if isinstance(value, str):
            return {"id": value}
        return value if isinstance(value, Mapping | Environment) else {"source": value}

    def __eq__(self, other: object) -> bool:
        """Whether the settings are the same, whatever is known of the game."""
        return isinstance(other, Environment) and dict(self) == dict(other)

    @property
    def unnamed(self) -> bool:
        """Whether only the program that gave it knows what it is."""
        return self.id.startswith(UNNAMED)

    def given_again(self, value: Any) -> Self:
        """Return it with the object or function that it was made of, in another process.

        Args:
            value: The object, the function, or an `Environment` of it.

        Raises:
            ConfigError: The environment is found by a name, or the object is not as many environments as the run has.
        """
        if not self.unnamed:
            raise ConfigError(
                f"env was given, and the run's environment is {self.id!r}, which is found by that name. Leave it out."
            )
        fields = describe_source(getattr(value, "source", None) or value, None)
        source = fields["source"] or value  # a function is kept, whatever its name
        if isinstance(source, UserEnvObject) and source.num_envs != self.num_envs:
            raise ConfigError(
                f"one object was given, which is {source.size}, and the run has num_envs={self.num_envs}. Give a "
                "function that makes them: env=lambda: …"
            )
        return self.model_copy(update={"source": source})

    @property
    def played(self) -> Environment:
        """Return the environment in which matches after training are played: `scored`, and from the game's start, without OpenSpiel's
        random `openings`."""
        family = FAMILIES.get(self.id.partition("/")[0])
        if family is None:
            return self
        usual = {name: {term: w for term, w in terms.items() if w} for name, terms in family.shaping.items()}
        options = {
            name: value
            for name, value in self.scored.options.items()
            if name not in family.training and not (name in usual and value == usual[name])
        }
        return self._with_options(options)

    @property
    def scored(self) -> Environment:
        """Return the environment in which the matches of a run are scored: without rewards for learners only, such as football's for
        passes."""
        family = FAMILIES.get(self.id.partition("/")[0])
        if family is None:
            return self
        options = dict(self.options)
        for name, terms in family.shaping.items():
            paid = options.pop(name, None)
            if counted := {t: w for t, w in paid.items() if t in terms} if isinstance(paid, Mapping) else {}:
                options[name] = counted
        return self._with_options(options)

    @property
    def own_rewards(self) -> Environment:
        """Return it with the game's own rewards."""
        family = FAMILIES.get(self.id.partition("/")[0])
        if family is None:  # one's own: what its options mean is not known here
            return self
        return self._with_options({name: value for name, value in self.options.items() if name not in family.shaping})

    def enumerated(self, spec: EnvSpec) -> bool:
        """Whether its games are those of a compiled tree, on which payoffs can be computed; wrapped, they are others."""
        return spec.enumeration is not None and not self.wrappers

    def _with_options(self, options: dict[str, Any]) -> Environment:
        return self if options == self.options else self.model_copy(update={"options": options})

    def of_game(self, game: GameFacts | None) -> Self:
        """Return a copy that makes this game only, as a run has it, in every process; None: any game that its name stands for."""
        copy = self.model_copy()
        copy._game = game
        return copy

    def changed_file(self, other: Environment) -> str:
        """Return the first file that holds something else for the other one, as far as both know; "" if none does."""
        other_files = other.files
        return next((name for name, digest in self.files.items() if other_files.get(name, digest) != digest), "")

    @property
    def files(self) -> Mapping[str, str]:
        """Return file -> SHA-256 of the files that the game was read from; {} where that is not known."""
        return {} if self._game is None else self._game.files

    def make(self, *, num_envs: int | None = None, **options: Any) -> VectorEnv:
        """Make the vector of environments.

        Args:
            num_envs: Number of environments, in place of its own; of fewer environments than `workers`, each has a subprocess.
            options: In place of its own.

        Returns:
            The vector, with its wrappers.

        Raises:
            LudusError: As `ludus.make_env`; EnvError also for another game than that of `of_game`.
        """
        return self._make(num_envs, options, [])

    def make_described(self, *, num_envs: int | None = None) -> tuple[VectorEnv, GameFacts]:
        """Return (the vector, as `make`, the facts of the game without its wrappers)."""
        specs: list[EnvSpec] = []
        env = self._make(num_envs, {}, specs)
        return env, GameFacts(id=self.id, players=player_facts(specs[0]), files=file_digests(self.id))

    def _make(self, num_envs: int | None, options: Mapping[str, Any], specs: list[EnvSpec]) -> VectorEnv:
        """Make the vector. specs: the spec of the game without wrappers is appended."""
        from ludus.envs.registry import make_vector  # a scenario can be read without loading what it runs on

        game = self._game

        def look(spec: EnvSpec) -> None:
            specs.append(spec)
            if game is not None:
                game.require(spec)

        if game is not None:
            game.require_files(self.id)
        return make_vector(
            self.id,
            num_envs=num_envs or self.num_envs,
            tree=self.tree,
            node_limit=self.node_limit,
            fast=self.fast,
            workers=self.workers if num_envs is None else min(self.workers, num_envs),
            deadline=self.deadline,
            restarts=self.restarts,
            wrappers=self.wrappers,
            source=self.source,
            agent_order=None if game is None else game.agent_order,
            look=look,
            options={**self.options, **options},
        )
