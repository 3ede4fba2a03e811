"""`pettingzoo/<name>`: the environments that PettingZoo registers: classic, SISL, butterfly, Atari, and whatever else its user does."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ludus.contrib.envs import zoo_atari
from ludus.core.errors import ConfigError, UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import Api, check_api, env_creator, render_options, zoo_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_WIN_OR_LOSE: Mapping[str, Any] = {"zero_sum": True, "utility_range": (-1, 1)}
_SIDES: Mapping[
    str, Mapping[str, Any]
] = {  # of games with two players, each its own agent; checked in tests by playing
    "atari/boxing": {
        "zero_sum": True
    },  # Atari's as their documentation says; most others punish stalling, and reward no one for it
    "atari/combat_plane": {"zero_sum": True},
    "atari/combat_tank": {"zero_sum": True},
    "atari/space_war": {"zero_sum": True},
    "classic/chess": _WIN_OR_LOSE,
    "classic/connect_four": _WIN_OR_LOSE,
    "classic/go": _WIN_OR_LOSE,
    "classic/leduc_holdem": {"zero_sum": True, "utility_range": (-7, 7)},  # 2 + 2 × 2 + 2 × 4 chips, in big blinds of 2
    "classic/texas_holdem": {"zero_sum": True, "utility_range": (-25, 25)},  # 10 + 8 + 16 + 16 chips, likewise
    "classic/texas_holdem_no_limit": {"zero_sum": True, "utility_range": (-100, 100)},  # the stack
    "classic/tictactoe": _WIN_OR_LOSE,
}
_NEEDED: Mapping[str, Mapping[str, Any]] = {  # options without which an environment is of no use
    "butterfly/cooperative_pong": {"render_mode": "rgb_array"},  # they show their agents what they have rendered
    "butterfly/pistonball": {"render_mode": "rgb_array"},
}
_RPS_ROUNDS = 15  # its max_cycles, where none is given; each round is won or lost by 1
_REMOVED = {"gin_rummy": "PettingZoo has removed gin_rummy; openspiel/gin_rummy is one, too"}


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    api: Api = "auto",
    render: bool = False,
    agent_order: Sequence[str] | None = None,
    own_stones_first: bool | None = None,
    **options: Any,
) -> VectorEnv:
    """Make the vector of an environment that PettingZoo registers.

    Args:
        name: `connect_four_v3`, `classic/connect_four_v3` or `classic/connect_four-v3`.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        api: "parallel" steps all agents at once, "aec" in turn; "auto": parallel where PettingZoo has it.
        render: Whether it is made able to render.
        agent_order: As in `zoo_vector`.
        own_stones_first: Of Go: true shows the stones of the player who is due in the first of each two planes, as the package's page has
            it; false (the default) shows the planes as pettingzoo 1.27.0 has them, every second pair exchanged.
        options: Those of `Sides` say who plays whom; Atari's noop_max and repeat_action_probability are those of
            `ludus.contrib.envs.zoo_atari`; the others go to the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment; with the nearest names.
        ConfigError: An option is not taken, or a package is missing.
        EnvError: The environment cannot be made.
    """
    check_api(api)
    spec_id = _find(name)
    spec = _find_spec(spec_id, api)
    sides, rest = split_options(options, defaults=_known_sides(spec_id, options))
    atari = spec.namespace == "atari"
    needed = _roms() if atari else _NEEDED.get(f"{spec.namespace}/{spec.name}", {})
    limit = {} if spec.max_cycles is None else {"max_cycles": spec.max_cycles}
    id = f"pettingzoo/{name}"
    noise, rest = zoo_atari.split_noise(id, rest) if atari else (None, rest)
    if sides.state and spec.name == "multiwalker":
        _refuse_state_of_removed_walkers(id, rest)
    creator = env_creator(id, spec.entry_point, {**spec.kwargs, **limit, **needed, **render_options(render), **rest})
    if noise is not None:
        creator = partial(zoo_atari.make_with_noise, creator, noise)
    return zoo_vector(
        _with_observations(creator, _observation_change(spec_id, own_stones_first)),
        num_envs,
        id=id,
        sides=sides,
        restarts=restarts,
        agent_order=agent_order,
        prepare=_own_board if spec_id.startswith("classic/go-") else None,
        forget=_forget_zombies if spec_id.startswith("butterfly/knights_archers_zombies-") else None,
        correct=_CORRECTIONS.get(f"{spec.namespace}/{spec.name}"),
    )


def names() -> list[str]:
    """Return what PettingZoo has registered, as `connect_four_v3`, sorted. Some need packages of their own: Atari multi-agent-ale-py,
    hanabi shimmy."""
    return sorted(spec_id.rpartition("/")[2].replace("-v", "_v") for spec_id in _registries())


def faults(name: str, options: Mapping[str, Any]) -> list[str]:
    """Return what PettingZoo lacks in an environment and results would hide: chance in Atari, unless an option adds some."""
    if not _find(name).startswith("atari/") or any(options.get(key) for key in zoo_atari.Noise._fields):
        return []
    return [
        f"pettingzoo/{name}: nothing is random (pettingzoo 1.27.0): deterministic policies play one match in each episode, and an interval "
        "over episodes says nothing about them. env.options.noop_max=30 or env.options.repeat_action_probability=0.25 adds chance."
    ]


def _registries() -> dict[str, Any]:
    """Return whatever is registered: id -> specification, parallel ones where there are."""
    from pettingzoo import aec_registry, parallel_registry

    return {**aec_registry, **parallel_registry}


def _find(name: str) -> str:
    """Return the id in PettingZoo's registries that a name stands for."""
    wanted = re.sub(r"_v(?=\d+$)", "-v", name)
    known = _registries()
    fitting = [spec_id for spec_id in known if wanted in (spec_id, spec_id.rpartition("/")[2])]
    if fitting:
        return fitting[0]
    if name.startswith(("mpe/", "simple_")):
        hint = f"The particle environments are a family of their own: mpe2/{name.removeprefix('mpe/')}"
    else:
        hint = _REMOVED.get(re.sub(r"_v\d+$", "", name.rpartition("/")[2]), "")
    raise UnknownName("environment of PettingZoo", name, names(), hint=hint)


def _find_spec(spec_id: str, api: Api) -> Any:
    from pettingzoo import aec_registry, parallel_registry

    if api != "aec" and spec_id in parallel_registry:
        return parallel_registry[spec_id]
    if api == "parallel" or spec_id not in aec_registry:
        raise ConfigError(f"api={api} was given; PettingZoo has no such interface for {spec_id}. Leave it out.")
    return aec_registry[spec_id]


def _known_sides(spec_id: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known about the sides of a game, if it is played by two."""
    if options.get("teams") is not None or options.get("num_players", 2) != 2:
        return {}
    game = spec_id.partition("-v")[0]
    if game == "classic/rps":
        rounds = options.get("max_cycles", _RPS_ROUNDS)
        return {"zero_sum": True, "utility_range": (-rounds, rounds), "symmetry": ((0, 1),)}
    return _SIDES.get(game, {})


def _roms() -> dict[str, str]:
    """Return where Atari's games are: in ale-py, if it is there; otherwise multi-agent-ale-py looks in its own folder."""
    package = importlib.util.find_spec("ale_py")
    places = package.submodule_search_locations if package is not None else None
    return {"auto_rom_install_path": str(Path(places[0]) / "roms")} if places else {}


def _observation_change(spec_id: str, own_stones_first: bool | None) -> Callable[[Any], None] | None:
    """Return what changes the observations of an environment, if anything does."""
    if not isinstance(own_stones_first, bool | None):
        raise ConfigError(f"own_stones_first={own_stones_first!r} was given; expected true or false.")
    if own_stones_first is not None and not spec_id.startswith("classic/go-"):
        raise ConfigError(f"own_stones_first={own_stones_first} was given; it is an option of go. Leave it out.")
    if spec_id.startswith("classic/hanabi-"):
        return _show_last_position
    return _show_own_stones_first if own_stones_first else None


def _with_observations(make: Callable[[], Any], change: Callable[[Any], None] | None) -> Callable[[], Any]:
    return make if change is None else partial(_make_changed, make, change)


def _make_changed(make: Callable[[], Any], change: Callable[[Any], None]) -> Any:
    env = make()
    change(env.unwrapped)
    return env


def _show_last_position(env: Any) -> None:
    """Let Hanabi show the last position once the game is over; Shimmy 2.0.1 shows the one before."""
    observe, adapter = env.observe, env.hanabi_env.unwrapped

    def observe_current(agent: str) -> Any:
        view = observe(agent)
        if adapter.game_state.is_terminal():
            tensor = adapter.game_state.observation_tensor(adapter.agent_name_id_mapping[agent])
            view["observation"] = np.asarray(tensor, view["observation"].dtype).reshape(view["observation"].shape)
        return view

    env.observe = observe_current


def _show_own_stones_first(env: Any) -> None:
    """Let Go show own stones first. It stacks boards as the player who has just moved sees them, so for the next one every second pair
    of planes, from the newest on, has the opponent's stones first."""
    observe, last = env.observe, 16  # the plane of the colour

    def observe_own_first(agent: str) -> Any:
        view = observe(agent)
        planes = view["observation"]
        first = np.arange(0, last, 4) + (0 if agent == env.agent_selection else 2)
        order = np.arange(planes.shape[2])
        order[first], order[first + 1] = first + 1, first
        return view | {"observation": planes[:, :, order]}

    env.observe = observe_own_first


def _own_board(env: Any) -> None:
    """Set the size of the board: PettingZoo's Go keeps it in its module, where boards of other sizes overwrite it."""
    from pettingzoo.classic.go import go_base

    if env._N != go_base.N:
        env._overwrite_go_global_variables(board_size=env._N)


def _forget_zombies(env: Any) -> None:
    """Reset when the next zombie comes and which are about to be removed: the environment's own reset does not."""
    env.zombie_spawn_interval.reset()
    env.kill_list.clear()


def _refuse_state_of_removed_walkers(id: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError where walkers that fell are removed while others walk on: multiwalker's state reads those, too."""
    if not options.get("terminate_on_fall", True) and options.get("remove_on_fall", True):
        raise ConfigError(
            f"state=true and terminate_on_fall=false were given for {id}; a walker that fell is then removed, and multiwalker cannot tell "
            "the state without it. Give remove_on_fall=false, or leave out state; the wrapper joint_state makes one of what all agents see."
        )


def _truncate_walkers(env: Any) -> None:
    """Set walkers truncated, not terminated, that the limit of steps stopped: multiwalker calls that an end."""
    walkers = env.env
    if walkers.frames < walkers.max_cycles:
        return
    for agent in env.agents:
        if env.terminations[agent] and not walkers.last_dones[env.possible_agents.index(agent)]:
            env.terminations[agent], env.truncations[agent] = False, True


def _terminate_late_capture(env: Any) -> None:
    """Set pursuers terminated, not truncated, that catch the last evader in the last permitted step: pursuit looks at the limit first."""
    if True in env.truncations.values() and env.env.is_terminal:
        env.terminations = dict.fromkeys(env.agents, True)
        env.truncations = dict.fromkeys(env.agents, False)


_CORRECTIONS: Mapping[str, Callable[[Any], None]] = {
    "sisl/multiwalker": _truncate_walkers,
    "sisl/pursuit": _terminate_late_capture,
}
