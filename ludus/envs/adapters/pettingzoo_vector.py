"""Vectors of PettingZoo environments, AEC or parallel."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, nearest
from ludus.core.packages import missing_package
from ludus.envs.adapters.agent_seats import AgentSeat, AgentSeats, EpisodeStatistics, Sides, seat_agents
from ludus.envs.adapters.step_checks import RESET_ALL, STEP_ALL, check_ends, check_mappings, read_rewards
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonEnv, PythonVectorEnv
from ludus.envs.spaces import observation_space

# --------------------------------------------------------------------------------------------------------------------
# PettingZoo's AEC environments, one decision at a time, or one of each agent where the environment moves once in a
# cycle.
#
#     step: the mover's action -> rewards of all -> final observations of the dead -> dead agents step with None
#           -> the selected agent is due


class AecEnv:
    """One AEC environment; `agent_selection` is due.

    Args:
        env: The environment.
        seats: Of its agents.
        with_state: Whether `env.state()` is read.
        prepare: Called with the environment before each reset and step.
        forget: Called before each reset, where the environment keeps something that it should not.
        correct: Called after each action, where the environment's flags of ends are not what happened.
        statistics: Takes the agents' statistics.
    """

    def __init__(
        self,
        env: Any,
        seats: AgentSeats,
        *,
        with_state: bool = False,
        prepare: Callable[[Any], None] | None = None,
        forget: Callable[[Any], None] | None = None,
        correct: Callable[[Any], None] | None = None,
        statistics: EpisodeStatistics | None = None,
    ) -> None:
        self._env = self.single = env
        self._seats = seats
        self._with_state = with_state
        self._statistics = statistics
        self._prepare = prepare
        self._forget = forget
        self._correct = correct
        self._present: list[Any] = []  # the agents after the last step
        self._reported_dead: set[Any] = set()  # of these, the dead whose end has been told
        self._last_reward: tuple[Any, Any] | None = None  # an agent, and what `last` told it
        self._audited = getattr(env, "last", None) is None  # it is known that `rewards` hold all rewards

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        env = self._env
        if self._prepare is not None:
            self._prepare(env)
        if self._forget is not None:
            self._forget(env)
        if self._statistics is not None:
            self._statistics.begin()
        env.reset(seed=seed)
        self._last_reward = None
        self._present = list(env.agents)
        self._reported_dead.clear()
        result = EnvStepResult()
        self._list_due(result)
        if self._with_state:
            result.state = env.state()
        return result

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        if self._prepare is not None:
            self._prepare(self._env)
        result = EnvStepResult([], [], [], [])  # sooner than without arguments
        self._act(actions, result)
        env = self._env
        if self._correct is not None:
            self._correct(env)
        terminations, truncations = env.terminations, env.truncations
        check_ends(terminations, truncations)
        if True in terminations.values() or True in truncations.values():
            self._close_dead(result)
        if env.agents != self._present:
            self._track_agents()
        if not env.agents:
            result.over = TRUNCATED if any(how == TRUNCATED for _, _, how in result.gone) else TERMINATED
            if self._statistics is not None:
                result.statistics = self._statistics.totals()
        else:
            self._list_due(result)
        if not self._audited:
            self._end_audit(result)
        if self._with_state and result.state is None:
            result.state = env.state()
        return result

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Render as `PythonEnv.render` describes. Raises EnvError if the environment was made without a render_mode."""
        return render_env(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    # ------------------------------------------------------------------------------------------ the two ways to take turns

    def _act(self, actions: Sequence[Any], result: EnvStepResult) -> None:
        """Step with the action of the agent that was due, and note the rewards of all agents."""
        env, seats = self._env, self._seats
        actor = env.agent_selection
        seat = seats[actor]
        if not self._audited:
            self._audit(actor)
        env.step(seat.act(actions[seat.index]))
        result.reward += read_rewards(env.rewards, seats, acted=(actor,))

    def _list_due(self, result: EnvStepResult) -> None:
        """List those who act next."""
        self._list(self._env.agent_selection, result)

    # ------------------------------------------------------------------------------------------ the rest

    def _audit(self, agent: Any) -> None:
        """Note the reward of the selected agent since it acted, as `last` gives it."""
        try:
            reward = self._env.last(observe=False)[1]
        except TypeError:  # one that was not made of PettingZoo's class
            reward = self._env.last()[1]
        if np.any(reward):
            self._last_reward = agent, reward

    def _end_audit(self, result: EnvStepResult) -> None:
        """Raise ContractViolation if the first episode has rewards in `last` only: `rewards`, which PettingZoo adds up for it, stayed at
        0."""
        if result.reward:
            self._audited = True
        elif result.over:
            self._audited = True
            if self._last_reward is not None:
                agent, reward = self._last_reward
                raise ContractViolation(
                    f"paid the agent {agent!r} {reward} by last(), and no agent by rewards; set rewards of all agents in each step, "
                    "and let self._accumulate_rewards() add them up"
                )

    def _list(self, agent: Any, result: EnvStepResult) -> None:
        env, seat = self._env, self._seats[agent]
        observation, mask = seat.see(env.observe(agent), env.infos.get(agent))
        result.due.append((seat.index, observation, mask))

    def _close_dead(self, result: EnvStepResult) -> None:
        """Close the agents that died in this step, and step dead agents with None until a living agent is selected."""
        env = self._env
        terminations, truncations = env.terminations, env.truncations
        for agent in list(env.agents):
            if agent not in self._reported_dead and (terminations[agent] or truncations[agent]):
                close(
                    result,
                    self._seats[agent],
                    env.observe(agent),
                    env.infos.get(agent),
                    TERMINATED if terminations[agent] else TRUNCATED,
                )
                if self._statistics is not None:
                    self._statistics.add(self._seats[agent].index, env.infos.get(agent))
                self._reported_dead.add(agent)
        if self._with_state:
            result.state = env.state()  # before the dead are removed
        while env.agents:
            agent = env.agent_selection
            if not (env.terminations[agent] or env.truncations[agent]):
                return
            if not self._audited:
                self._audit(agent)
            env.step(None)
            if agent in env.agents:
                raise ContractViolation(f"did not remove the dead agent {agent!r} when it stepped with None")

    def _track_agents(self) -> None:
        now = set(self._env.agents)
        for agent in self._present:
            if agent not in now and agent not in self._reported_dead:
                raise ContractViolation(f"removed the agent {agent!r}, which was neither terminated nor truncated")
        self._present = list(self._env.agents)
        self._reported_dead &= now  # an agent that was removed may come back


class CycleEnv(AecEnv):
    """One AEC environment that PettingZoo has turned into a parallel one: it moves when the last agent of a cycle has acted, so all of them
    are due simultaneously, as in PettingZoo's own conversion, but each is observed once only."""

    def _act(self, actions: Sequence[Any], result: EnvStepResult) -> None:
        env, seats = self._env, self._seats
        for agent in list(env.agents):
            if agent != env.agent_selection:
                raise ContractViolation(
                    f"selected {env.agent_selection!r} when it was the turn of {agent!r} in a cycle; it is not parallelizable, so give "
                    "the option api='aec'"
                )
            seat = seats[agent]
            if not self._audited:
                self._audit(agent)
            env.step(seat.act(actions[seat.index]))
            result.reward += read_rewards(env.rewards, seats, acted=(agent,))

    def _list_due(self, result: EnvStepResult) -> None:
        for agent in self._env.agents:
            self._list(agent, result)


def close(result: EnvStepResult, seat: AgentSeat, raw_observation: Any, info: Any, how: int) -> None:
    """Add the end of one agent to the result. Masks of agents whose turn it was not are empty and do not say anything."""
    observation, mask = seat.see(raw_observation, info)
    result.gone.append((seat.index, observation, how))
    if mask is None or seat.says_nothing(mask):
        mask = seat.legal
    if mask is not None:
        result.final_mask.append((seat.index, mask))


def render_env(env: Any) -> NDArray[np.uint8] | str:
    """Return what a PettingZoo or Gymnasium environment shows. Raises EnvError if it was made without a render_mode, or shows nothing."""
    if getattr(env, "render_mode", None) is None:
        raise EnvError(
            "the environment was made without a render_mode; give env.options.render=true in the scenario, or env.options.render_mode=ansi "
            "for text where it has any. A class of your own needs a parameter render_mode."
        )
    frame = env.render()
    if frame is None:
        raise EnvError(
            f'render_mode={env.render_mode!r} draws on the screen and returns nothing; give render_mode="rgb_array".'
        )
    return frame if isinstance(frame, str) else np.asarray(frame)


# --------------------------------------------------------------------------------------------------------------------
# PettingZoo's parallel environments: every living agent is due in every step.


_WAITS = "; agents that sit out some steps need PettingZoo's AEC interface, where none but the selected agent acts"


class ParallelEnv:
    """One parallel environment. An agent that dies without a final observation is closed with its last observation.

    Args:
        env: The environment.
        seats: Of its agents.
        with_state: Whether `env.state()` is read.
        statistics: Takes the agents' statistics.
    """

    def __init__(
        self, env: Any, seats: AgentSeats, *, with_state: bool = False, statistics: EpisodeStatistics | None = None
    ) -> None:
        self._env = self.single = env
        self._statistics = statistics
        self._seats = seats
        self._with_state = with_state
        self._present: list[Any] = []  # agents that are due
        self._observations: Mapping[Any, Any] = {}

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        answer = self._env.reset(seed=seed)
        check_mappings("reset", answer, RESET_ALL)
        observations, infos = answer
        if self._statistics is not None:
            self._statistics.begin()
        result = EnvStepResult()
        self._list_due(result, list(self._env.agents), observations, infos)
        return result

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        seats = self._seats
        agent_actions = {agent: (seat := seats[agent]).act(actions[seat.index]) for agent in self._present}
        answer = self._env.step(agent_actions)
        try:
            return self._read_result(answer)
        except (AttributeError, TypeError, ValueError):
            check_mappings("step", answer, STEP_ALL)
            raise

    @property
    def game(self) -> object:
        """Return the environment's object as `PythonEnv.game` describes."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """Render as `PythonEnv.render` describes. Raises EnvError if the environment was made without a render_mode."""
        return render_env(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _read_result(self, answer: Any) -> EnvStepResult:
        """Return what a step's answer says."""
        observations, rewards, terminations, truncations, infos = answer
        result = EnvStepResult(reward=read_rewards(rewards, self._seats, acted=self._present))
        check_ends(terminations, truncations)
        alive = list(self._env.agents)
        if True in terminations.values() or True in truncations.values() or alive != self._present:
            alive = self._close_dead(result, alive, observations, terminations, truncations, infos)
        if not alive:
            result.over = TRUNCATED if any(how == TRUNCATED for _, _, how in result.gone) else TERMINATED
            if self._statistics is not None:
                result.statistics = self._statistics.totals()
            if self._with_state:
                result.state = self._env.state()
        else:
            self._list_due(result, alive, observations, infos)
        return result

    def _close_dead(
        self,
        result: EnvStepResult,
        alive: list[Any],
        observations: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> list[Any]:
        """Close the agents that died or left in this step. Returns the others."""
        for agent in self._present:
            terminated = terminations.get(agent, False)
            if terminated or truncations.get(agent, False):
                last = observations.get(agent)
                if last is None:
                    last = self._observations[agent]
                close(result, self._seats[agent], last, infos.get(agent), TERMINATED if terminated else TRUNCATED)
                if self._statistics is not None:
                    self._statistics.add(self._seats[agent].index, infos.get(agent))
            elif agent not in alive:
                raise ContractViolation(
                    f"removed the agent {agent!r}, which was neither terminated nor truncated{_WAITS}"
                )
        return [a for a in alive if not (terminations.get(a, False) or truncations.get(a, False))]

    def _list_due(
        self, result: EnvStepResult, alive: list[Any], observations: Mapping[Any, Any], infos: Mapping[Any, Any]
    ) -> None:
        seats, due = self._seats, result.due
        for agent in alive:
            if agent not in observations:
                raise ContractViolation(
                    f"gave no observation for the agent {agent!r}, which is among its agents{_WAITS}"
                )
            seat = seats[agent]
            due.append((seat.index, *seat.see(observations[agent], infos.get(agent))))
        self._present, self._observations = alive, observations
        if self._with_state:
            result.state = self._env.state()


Api: TypeAlias = Literal["auto", "aec", "parallel"]


def zoo_vector(
    make: Callable[[], Any],
    num_envs: int,
    *,
    id: str,
    sides: Sides,
    restarts: int = 0,
    agent_order: Sequence[str] | None = None,
    prepare: Callable[[Any], None] | None = None,
    forget: Callable[[Any], None] | None = None,
    correct: Callable[[Any], None] | None = None,
    vector: Callable[..., PythonVectorEnv] = PythonVectorEnv,
) -> PythonVectorEnv:
    """Make a vector of PettingZoo environments with the AEC or the parallel interface.

    PettingZoo's own wrappers around an environment are removed: Ludus checks actions and order itself.

    Args:
        make: Makes one environment.
        num_envs: Number of environments.
        id: What to call it in messages.
        sides: Who plays whom.
        restarts: As in `PythonVectorEnv`.
        agent_order: Names of all agents, in the order in which they are listed; None: as possible_agents has them, which may be another in
            another process.
        prepare: As in `AecEnv`; forget and correct likewise.
        vector: What is made, with the arguments of `PythonVectorEnv`.

    Returns:
        The vector.

    Raises:
        EnvError: There is no `possible_agents`, or policies cannot play a space.
        ConfigError: Teams do not fit.
    """
    first = make()
    bare, cycle, clip = _bare(first)
    agents = _ordered(_agents(bare, id), agent_order)
    infos = _first_infos(bare, id)
    spec, seats, masked = seat_agents(
        id,
        agents,
        {agent: _spaces(bare, agent, id) for agent in agents},
        sides=sides,
        masked=any("action_mask" in info for info in infos.values() if info),
        clip=clip,
        state=_state_space(bare, id) if sides.state else None,
        pad_actions=True,
        counts=True,
    )
    players = [agent.player for agent in spec.agents]
    probes = [bare]  # made already: the vector's first

    def new_env() -> PythonEnv:
        env = probes.pop() if probes else _bare(make())[0]
        statistics = EpisodeStatistics(spec.statistics, players) if spec.statistics else None
        if not hasattr(env, "agent_selection") and not hasattr(env, "observe"):
            return ParallelEnv(env, AgentSeats(seats), with_state=sides.state, statistics=statistics)
        kind = CycleEnv if cycle else AecEnv
        hooks = {"prepare": prepare, "forget": forget, "correct": correct}
        return kind(env, AgentSeats(seats), with_state=sides.state, statistics=statistics, **hooks)

    return vector(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts, probes=probes)


def env_creator(id: str, entry: str | Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return what makes the environment of `module:function` with these options. It raises ConfigError if it does not take them, or a
    package is missing (with what to install), and EnvError if anything else goes wrong."""
    return partial(_make, id, entry, dict(options))


def check_api(api: str) -> None:
    """Raise ConfigError for an interface that there is not."""
    if api not in get_args(Api):
        raise ConfigError(f"api={api!r} was given; allowed: {', '.join(get_args(Api))}.")


def render_options(render: bool) -> dict[str, str]:
    """Return the options that make an environment able to show itself, if it is to."""
    return {"render_mode": "rgb_array"} if render else {}


def _make(id: str, entry: str | Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        if not isinstance(entry, str):
            return entry(**options)
        with (
            warnings.catch_warnings()
        ):  # old packages warn when they are imported and describe their spaces; Box2D crashes if it may not
            warnings.simplefilter("ignore")
            module = importlib.import_module(entry.partition(":")[0])
            creator = getattr(module, entry.partition(":")[2])
            _check_options(id, getattr(module, "raw_env", creator), options)
            return creator(**options)
    except ImportError as error:
        raise missing_package(id, error) from error
    except ConfigError:
        raise
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {error}.") from error


def _check_options(id: str, creator: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise ConfigError, with the nearest one, for an option that neither the environment nor `Sides` has."""
    parameters = inspect.signature(creator).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := sorted(set(options) - set(parameters)):
        known = {*parameters, *(field.name for field in fields(Sides)), "api"}
        raise ConfigError(f"{id} has no option {unknown[0]!r}{nearest(unknown[0], known)}")


def _bare(env: Any) -> tuple[Any, bool, bool]:
    """Return (the environment without PettingZoo's wrappers, whether it is played in cycles, whether actions are clipped into their
    spaces).

    The wrappers that are taken off: those that check the order of calls, out-of-bounds and illegal actions, which Ludus refuses before;
    the one that clips; and the conversions between the two interfaces, where the other side can be played itself.
    """
    from pettingzoo.utils import conversions, wrappers

    checks = wrappers.OrderEnforcingWrapper, wrappers.AssertOutOfBoundsWrapper, wrappers.TerminateIllegalWrapper
    bounds = wrappers.ClipOutOfBoundsWrapper, wrappers.AssertOutOfBoundsWrapper
    cycle = clip = False
    while True:
        if type(env) is conversions.aec_to_parallel_wrapper:
            cycle, env = True, env.aec_env
        elif type(env) is conversions.parallel_to_aec_wrapper and cycle:
            cycle, env = False, env.env
        elif type(env) in (*checks, *bounds):
            clip |= type(env) in bounds
            env = env.env
        else:
            return env, cycle, clip


def _agents(env: Any, id: str) -> list[Any]:
    """Return all that may ever appear. Raises EnvError if it does not say, or names one twice."""
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise EnvError(f"{id} has no possible_agents; Ludus needs all agents that may ever appear, from the beginning.")
    if not isinstance(agents, Iterable) or len(set(map(str, agents))) < len(list(agents)):
        raise EnvError(f"{id} has possible_agents={agents!r}; expected a list of different names.")
    return list(agents)


def _ordered(agents: list[Any], order: Sequence[str] | None) -> list[Any]:
    """Return the agents in the order of their names, if these are their names; otherwise unchanged, and the caller reports the
    difference."""
    by_name = {str(agent): agent for agent in agents}
    return agents if order is None or by_name.keys() != set(order) else [by_name[name] for name in order]


def _spaces(env: Any, agent: Any, id: str) -> tuple[Space[Any], Space[Any]]:
    try:
        return env.observation_space(agent), env.action_space(agent)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise EnvError(
            f"{id} has no spaces of its agent {agent!r} ({what}); each of possible_agents needs both."
        ) from error


def _first_infos(env: Any, id: str) -> Mapping[Any, Any]:
    """Return what the first reset tells each agent."""
    try:
        answer = env.reset(seed=0)
        if answer is not None:
            check_mappings("reset", answer, RESET_ALL)
        infos = env.infos if answer is None else answer[1]
    except ContractViolation as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    if not isinstance(infos, Mapping):
        raise EnvError(f"{id} gave the infos {infos!r} after a reset; expected a mapping of agents.")
    return infos


def _state_space(env: Any, id: str) -> Space[Any]:
    """Return the space of `env.state()`. Raises EnvError if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = np.asarray(env.state())
    except Exception as error:
        raise EnvError(f"{id} has no state ({type(error).__name__}: {error}); leave out state=true.") from error
    space = getattr(env, "state_space", None)
    if not isinstance(space, spaces.Box) or space.shape != state.shape:
        kind = state.dtype.type if state.dtype.kind in "biu" else np.float32
        low, high = (0, 1) if state.dtype.kind == "b" else (-np.inf, np.inf)
        if state.dtype.kind in "iu":
            low, high = np.iinfo(state.dtype).min, np.iinfo(state.dtype).max
        space = spaces.Box(low, high, state.shape, kind)
    box, _ = observation_space(space, what=f"the state of {id}")
    return box
