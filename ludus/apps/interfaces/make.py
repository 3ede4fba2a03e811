"""What `ludus.gymnasium_env`, `gymnasium_vector_env`, `sb3_vec_env` and `pettingzoo_env` are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from ludus.apps.interfaces.gymnasium_env import GymnasiumEnv
from ludus.apps.interfaces.gymnasium_vector import GymnasiumVectorEnv
from ludus.apps.interfaces.opponents import Opponents
from ludus.apps.interfaces.player_games import IllegalActions, Player
from ludus.core.errors import ConfigError
from ludus.core.packages import optional
from ludus.core.trust import trusting

if TYPE_CHECKING:
    from ludus.apps.interfaces.pettingzoo_env import MaskPlace, PettingZooAEC, PettingZooParallel
    from ludus.apps.interfaces.sb3 import SB3VecEnv


def gymnasium_env(
    env: Any = None,
    *,
    player: int | str = 0,
    opponents: Opponents = "random",
    seed: int | None = None,
    illegal_actions: IllegalActions = "random",
    render_mode: str | None = None,
    trust: bool = False,
    **options: Any,
) -> GymnasiumEnv:
    """Make one player's side of an environment as a `gymnasium.Env`; policies or bots play the others.

    Args:
        env: An id such as `openspiel/leduc_poker`, a `ludus.Environment`, or what else `ludus.run` takes; None: the environment of the run
            that `opponents` names.
        player: Whom the caller plays, by number or by the name of an agent. The agents of a team are played together.
        opponents: Who plays the others. A name of a policy: `RUN@meta`, `RUN@best`, `random`, `bot:mcts-100`, a file; a list of names, of
            which each episode draws one for each seat, `{"policy": name, "weight": 2}` more often; or a mapping from seats to these.
        seed: Of the first `reset`, if that has none; None: different each time.
        illegal_actions: What an illegal action does: "random" draws a legal one in its place, and warns once; "lose" ends the episode
            with the game's least return; "raise" raises EnvError.
        render_mode: "rgb_array" or "ansi", where the environment has it.
        trust: Whether code that a run or file from elsewhere names is imported.
        options: As `ludus.make_env` takes them: `tree`, `wrappers`, …, and those of the environment.

    Returns:
        The environment. Rewards of an episode sum to the player's return. `info["action_mask"]` and `action_masks()` are its legal actions.

    Raises:
        ConfigError: For wrong arguments and unknown names, with the nearest.
        ScenarioError: An opponent plays another game.
        PolicyError: An opponent cannot play its seat.
        EnvError: The environment cannot be made.
    """
    return GymnasiumEnv(
        env,
        player=player,
        opponents=opponents,
        seed=seed,
        illegal_actions=illegal_actions,
        render_mode=render_mode,
        trust=trust,
        **options,
    )


def gymnasium_vector_env(
    env: Any = None,
    *,
    num_envs: int,
    player: Player = 0,
    opponents: Opponents = "random",
    seed: int | None = None,
    illegal_actions: IllegalActions = "random",
    autoreset_mode: str = "next_step",
    render_mode: str | None = None,
    trust: bool = False,
    **options: Any,
) -> GymnasiumVectorEnv:
    """Make one player's side of many environments as a `gymnasium.vector.VectorEnv`; the opponents answer in batches.

    Environment e of a vector with seed s plays the episodes of `gymnasium_env` with seed s + e, up to the rounding of batches.

    Args:
        env: As in `gymnasium_env`, and so are all arguments but these.
        num_envs: Number of environments.
        player: Whom the caller plays; of several, [0, 1], environment e is played as the player e modulo their number.
        opponents: Who plays the others, drawn for each environment's episodes.
        seed: Of the first `reset`, if that has none.
        illegal_actions: What an illegal action does.
        autoreset_mode: When an environment whose episode is over begins the next one: "next_step" (Gymnasium's default), "same_step" (with
            `info["final_obs"]` and `info["final_info"]`), or "disabled" (by `reset(options={"reset_mask": …})`).
        render_mode: "rgb_array" or "ansi".
        trust: Whether code that a run or file from elsewhere names is imported.
        options: As `ludus.make_env` takes them.

    Returns:
        The environments.

    Raises:
        LudusError: As `gymnasium_env`.
    """
    return GymnasiumVectorEnv(
        env,
        num_envs=num_envs,
        player=player,
        opponents=opponents,
        seed=seed,
        illegal_actions=illegal_actions,
        autoreset_mode=autoreset_mode,
        render_mode=render_mode,
        trust=trust,
        **options,
    )


def sb3_vec_env(env: Any = None, *, num_envs: int, **arguments: Any) -> SB3VecEnv:
    """Make one player's side of many environments as a `VecEnv` of Stable-Baselines3, for `PPO(…)`, or sb3-contrib's `MaskablePPO(…)`.

    Args:
        env: As in `gymnasium_env`.
        num_envs: Number of environments.
        arguments: Those of `gymnasium_vector_env`, except `autoreset_mode`.

    Returns:
        The environments. They are stepped together, in this process.

    Raises:
        LudusError: As `gymnasium_env`; ConfigError also if Stable-Baselines3 is missing.
    """
    if "autoreset_mode" in arguments:
        raise ConfigError("autoreset_mode was given; Stable-Baselines3 has one of its own. Leave it out.")
    with optional("a VecEnv of Stable-Baselines3"):
        from ludus.apps.interfaces.sb3 import SB3VecEnv
    return SB3VecEnv(GymnasiumVectorEnv(env, num_envs=num_envs, autoreset_mode="same_step", **arguments))


@overload
def pettingzoo_env(env: Any, *, api: Literal["aec"] = ..., **options: Any) -> PettingZooAEC: ...
@overload
def pettingzoo_env(env: Any, *, api: Literal["parallel"], **options: Any) -> PettingZooParallel: ...
def pettingzoo_env(
    env: Any,
    *,
    api: Literal["aec", "parallel"] = "aec",
    seed: int | None = None,
    masks: MaskPlace = "observation",
    illegal_actions: IllegalActions = "random",
    render_mode: str | None = None,
    trust: bool = False,
    **options: Any,
) -> PettingZooAEC | PettingZooParallel:
    """Make an environment with PettingZoo's interface; the caller plays all agents.

    Args:
        env: As in `gymnasium_env`.
        api: "aec": agents are asked in turn; "parallel": all agents at once.
        seed: Of the first `reset`, if that has none.
        masks: Where legal actions are: "observation" for {"observation", "action_mask"}, "info" for `infos[agent]["action_mask"]`.
        illegal_actions: As in `gymnasium_env`.
        render_mode: "rgb_array" or "ansi".
        trust: Whether code that the environment names is imported, if a file from elsewhere does.
        options: As `ludus.make_env` takes them.

    Returns:
        The environment.

    Raises:
        ConfigError: For wrong arguments; also if PettingZoo is missing.
        EnvError: The environment cannot be made.
    """
    if api not in ("aec", "parallel"):
        raise ConfigError(f"api={api!r} was given; allowed: aec, parallel.")
    with optional("an environment of PettingZoo's interface", extra="pettingzoo"):
        from ludus.apps.interfaces.pettingzoo_env import PettingZooAEC, PettingZooParallel
    arguments = {
        "env": env,
        "seed": seed,
        "masks": masks,
        "illegal_actions": illegal_actions,
        "render_mode": render_mode,
        **options,
    }
    with trusting(trust):
        return PettingZooAEC(**arguments) if api == "aec" else PettingZooParallel(**arguments)
