"""Vectors of PettingZoo environments, AEC or parallel, whoever made them."""

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
from ludus.envs.adapters.step_checks import RESET_ALL, STEP_ALL, check_ends, check_mappings, check_rewards
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import Flaw, Happened, PythonEnv, PythonVectorEnv
from ludus.envs.spaces import observation_space

# --------------------------------------------------------------------------------------------------------------------
# PettingZoo's AEC environments, one decision at a time, or one of each agent where the environment moves once in a
# cycle.
#
#     step: the mover's action -> rewards of all -> final observations of the dead -> dead agents step with None
#           -> whoever is selected is due


class AecEnv:
    """One AEC environment; whoever is `agent_selection` is due.

    with_state: whether to read `env.state()`. prepare: called with the environment before each reset and step, forget:
    before each reset, where it keeps something that it should not. counted: takes the agents' statistics.
    """

    def __init__(
        self,
        env: Any,
        seats: AgentSeats,
        *,
        with_state: bool = False,
        prepare: Callable[[Any], None] | None = None,
        forget: Callable[[Any], None] | None = None,
        counted: EpisodeStatistics | None = None,
    ) -> None:
        self._env = self.single = env
        self._seats = seats
        self._with_state = with_state
        self._counted = counted
        self._prepare = prepare
        self._forget = forget
        self._there: list[Any] = []  # the agents after the last step
        self._left: set[Any] = set()  # of these, the dead whose end has been told
        self._paid_by_last: tuple[Any, Any] | None = None  # an agent, and what `last` told it
        self._audited = getattr(env, "last", None) is None  # it is known that `rewards` hold what is paid

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`."""
        env = self._env
        if self._prepare is not None:
            self._prepare(env)
        if self._forget is not None:
            self._forget(env)
        if self._counted is not None:
            self._counted.begin()
        env.reset(seed=seed)
        self._paid_by_last = None
        self._there = list(env.agents)
        self._left.clear()
        happened = Happened()
        self._list_due(happened)
        if self._with_state:
            happened.state = env.state()
        return happened

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        if self._prepare is not None:
            self._prepare(self._env)
        happened = Happened()
        self._act(actions, happened)
        env = self._env
        check_ends(env.terminations, env.truncations)
        if True in env.terminations.values() or True in env.truncations.values():
            self._bury(happened)
        if env.agents != self._there:
            self._note_who_is_there()
        if not env.agents:
            happened.over = TRUNCATED if any(how == TRUNCATED for _, _, how in happened.gone) else TERMINATED
            if self._counted is not None:
                happened.statistics = self._counted.totals()
        else:
            self._list_due(happened)
        if not self._audited:
            self._end_audit(happened)
        if self._with_state and happened.state is None:
            happened.state = env.state()
        return happened

    @property
    def game(self) -> object:
        """See `PythonEnv.game`."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """See `PythonEnv.render`. Raises EnvError if the environment was made without a render_mode."""
        return rendered(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    # ------------------------------------------------------------------------------------------ the two ways to take turns

    def _act(self, actions: Sequence[Any], happened: Happened) -> None:
        """Let those who were due act, and note what everybody earned."""
        env, seats = self._env, self._seats
        actor = env.agent_selection
        seat = seats[actor]
        if not self._audited:
            self._audit(actor)
        env.step(seat.act(actions[seat.index]))
        check_rewards(env.rewards, (actor,))
        for agent, reward in env.rewards.items():
            if reward != 0:
                happened.reward.append((seats[agent].index, reward))

    def _list_due(self, happened: Happened) -> None:
        """List those who act next."""
        self._list(self._env.agent_selection, happened)

    # ------------------------------------------------------------------------------------------ the rest

    def _audit(self, agent: Any) -> None:
        """Note what `last` tells the selected agent that it was paid since it acted."""
        try:
            paid = self._env.last(observe=False)[1]
        except TypeError:  # one that was not made of PettingZoo's class
            paid = self._env.last()[1]
        if paid:
            self._paid_by_last = agent, paid

    def _end_audit(self, happened: Happened) -> None:
        """Raises Flaw if the first episode has paid by `last` alone: `rewards`, which PettingZoo adds up for it, stayed at 0."""
        if happened.reward:
            self._audited = True
        elif happened.over:
            self._audited = True
            if self._paid_by_last is not None:
                agent, paid = self._paid_by_last
                raise Flaw(
                    f"paid the agent {agent!r} {paid} by last(), and nobody anything by rewards; set rewards of all agents in each step, "
                    "and let self._accumulate_rewards() add them up"
                )

    def _list(self, agent: Any, happened: Happened) -> None:
        env, seat = self._env, self._seats[agent]
        seen, mask = seat.see(env.observe(agent), env.infos.get(agent))
        happened.due.append((seat.index, seen, mask))

    def _bury(self, happened: Happened) -> None:
        """Tell the end of those who died in this step, and let the dead step with None until a living agent is selected."""
        env = self._env
        terminations, truncations = env.terminations, env.truncations
        for agent in list(env.agents):
            if agent not in self._left and (terminations[agent] or truncations[agent]):
                close(
                    happened,
                    self._seats[agent],
                    env.observe(agent),
                    env.infos.get(agent),
                    TERMINATED if terminations[agent] else TRUNCATED,
                )
                if self._counted is not None:
                    self._counted.add(self._seats[agent].index, env.infos.get(agent))
                self._left.add(agent)
        if self._with_state:
            happened.state = env.state()  # before the dead are removed
        while env.agents:
            agent = env.agent_selection
            if not (env.terminations[agent] or env.truncations[agent]):
                return
            if not self._audited:
                self._audit(agent)
            env.step(None)
            if agent in env.agents:
                raise Flaw(f"did not remove the dead agent {agent!r} when it stepped with None")

    def _note_who_is_there(self) -> None:
        now = set(self._env.agents)
        for agent in self._there:
            if agent not in now and agent not in self._left:
                raise Flaw(f"removed the agent {agent!r}, which was neither terminated nor truncated")
        self._there = list(self._env.agents)
        self._left &= now  # an agent that was removed may come back


class CycleEnv(AecEnv):
    """One AEC environment that PettingZoo has turned into a parallel one: it moves when the last agent of a cycle has acted, so all of them
    are due at once, as in PettingZoo's own conversion, but each is observed once only."""

    def _act(self, actions: Sequence[Any], happened: Happened) -> None:
        env, seats, earned = self._env, self._seats, happened.reward
        for agent in list(env.agents):
            if agent != env.agent_selection:
                raise Flaw(
                    f"selected {env.agent_selection!r} when it was the turn of {agent!r} in a cycle; it is not parallelizable, so give "
                    "the option api='aec'"
                )
            seat = seats[agent]
            if not self._audited:
                self._audit(agent)
            env.step(seat.act(actions[seat.index]))
            check_rewards(env.rewards, (agent,))
            for other, reward in env.rewards.items():
                if reward != 0:
                    earned.append((seats[other].index, reward))

    def _list_due(self, happened: Happened) -> None:
        for agent in self._env.agents:
            self._list(agent, happened)


def close(happened: Happened, seat: AgentSeat, shown: Any, info: Any, how: int) -> None:
    """Tell the end of one agent. Masks of those whose turn it was not are empty, and say nothing."""
    seen, mask = seat.see(shown, info)
    happened.gone.append((seat.index, seen, how))
    if mask is None or seat.says_nothing(mask):
        mask = seat.legal
    if mask is not None:
        happened.final_mask.append((seat.index, mask))


def rendered(env: Any) -> NDArray[np.uint8] | str:
    """What a PettingZoo or Gymnasium environment shows. Raises EnvError if it was made without a render_mode, or shows nothing."""
    if getattr(env, "render_mode", None) is None:
        raise EnvError(
            "the environment was made without a render_mode; give env.options.render=true in the scenario, or env.options.render_mode=ansi "
            "for text where it has any. A class of your own needs a parameter render_mode."
        )
    shown = env.render()
    if shown is None:
        raise EnvError(
            f'render_mode={env.render_mode!r} draws on the screen and returns nothing; give render_mode="rgb_array".'
        )
    return shown if isinstance(shown, str) else np.asarray(shown)


# --------------------------------------------------------------------------------------------------------------------
# PettingZoo's parallel environments: every living agent is due in every step.


_WAITS = "; agents that sit out some steps need PettingZoo's AEC interface, where none but the selected agent acts"


class ParallelEnv:
    """One parallel environment. An agent that dies without a final observation is closed with the last one it was shown.

    with_state: whether to read `env.state()`. counted: takes the agents' statistics.
    """

    def __init__(
        self, env: Any, seats: AgentSeats, *, with_state: bool = False, counted: EpisodeStatistics | None = None
    ) -> None:
        self._env = self.single = env
        self._counted = counted
        self._seats = seats
        self._with_state = with_state
        self._there: list[Any] = []  # whoever is due
        self._shown: Mapping[Any, Any] = {}

    def reset(self, seed: int) -> Happened:
        """See `PythonEnv.reset`."""
        answer = self._env.reset(seed=seed)
        check_mappings("reset", answer, RESET_ALL)
        shown, infos = answer
        if self._counted is not None:
            self._counted.begin()
        happened = Happened()
        self._list_due(happened, list(self._env.agents), shown, infos)
        return happened

    def step(self, actions: Sequence[Any]) -> Happened:
        """See `PythonEnv.step`."""
        seats = self._seats
        taken = {agent: (seat := seats[agent]).act(actions[seat.index]) for agent in self._there}
        answer = self._env.step(taken)
        try:
            return self._told(answer)
        except (AttributeError, TypeError, ValueError):
            check_mappings("step", answer, STEP_ALL)
            raise

    @property
    def game(self) -> object:
        """See `PythonEnv.game`."""
        return self._env

    def render(self) -> NDArray[np.uint8] | str:
        """See `PythonEnv.render`. Raises EnvError if the environment was made without a render_mode."""
        return rendered(self._env)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _told(self, answer: Any) -> Happened:
        """What a step's answer says."""
        shown, rewards, terminations, truncations, infos = answer
        seats, happened = self._seats, Happened()
        check_rewards(rewards, self._there)
        check_ends(terminations, truncations)
        for agent, reward in rewards.items():
            if reward != 0:  # None, say, is no reward and becomes a flaw
                happened.reward.append((seats[agent].index, reward))
        alive = list(self._env.agents)
        if True in terminations.values() or True in truncations.values() or alive != self._there:
            alive = self._bury(happened, alive, shown, terminations, truncations, infos)
        if not alive:
            happened.over = TRUNCATED if any(how == TRUNCATED for _, _, how in happened.gone) else TERMINATED
            if self._counted is not None:
                happened.statistics = self._counted.totals()
            if self._with_state:
                happened.state = self._env.state()
        else:
            self._list_due(happened, alive, shown, infos)
        return happened

    def _bury(
        self,
        happened: Happened,
        alive: list[Any],
        shown: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> list[Any]:
        """Tell the end of those who died or left in this step; the others."""
        for agent in self._there:
            terminated = terminations.get(agent, False)
            if terminated or truncations.get(agent, False):
                last = shown.get(agent)
                if last is None:
                    last = self._shown[agent]
                close(happened, self._seats[agent], last, infos.get(agent), TERMINATED if terminated else TRUNCATED)
                if self._counted is not None:
                    self._counted.add(self._seats[agent].index, infos.get(agent))
            elif agent not in alive:
                raise Flaw(f"removed the agent {agent!r}, which was neither terminated nor truncated{_WAITS}")
        return [a for a in alive if not (terminations.get(a, False) or truncations.get(a, False))]

    def _list_due(
        self, happened: Happened, alive: list[Any], shown: Mapping[Any, Any], infos: Mapping[Any, Any]
    ) -> None:
        seats, due = self._seats, happened.due
        for agent in alive:
            if agent not in shown:
                raise Flaw(f"gave no observation for the agent {agent!r}, which is among its agents{_WAITS}")
            seat = seats[agent]
            due.append((seat.index, *seat.see(shown[agent], infos.get(agent))))
        self._there, self._shown = alive, shown
        if self._with_state:
            happened.state = self._env.state()


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
    vector: Callable[..., PythonVectorEnv] = PythonVectorEnv,
) -> PythonVectorEnv:
    """A vector of `num_envs` environments that `make` makes, each with PettingZoo's AEC or parallel interface.

    id: what to call it in messages. restarts: see `PythonVectorEnv`. agent_order: names of all agents, in the order in which they are
    listed; None: as possible_agents has them, which may be another in another process. prepare, forget: see `AecEnv`. vector: what is made,
    with the arguments of `PythonVectorEnv`. PettingZoo's own wrappers around an environment are taken off: Ludus checks actions and order
    itself.
    Raises EnvError for one without `possible_agents`, or with spaces that policies cannot play; ConfigError for teams that do not fit.
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
    kept = [bare]  # made already: the vector's first

    def made() -> PythonEnv:
        env = kept.pop() if kept else _bare(make())[0]
        counted = EpisodeStatistics(spec.statistics, players) if spec.statistics else None
        if not hasattr(env, "agent_selection") and not hasattr(env, "observe"):
            return ParallelEnv(env, AgentSeats(seats), with_state=sides.state, counted=counted)
        kind = CycleEnv if cycle else AecEnv
        return kind(env, AgentSeats(seats), with_state=sides.state, prepare=prepare, forget=forget, counted=counted)

    return vector(made, num_envs, spec=spec, masked=masked, restarts_allowed=restarts, kept=kept)


def made_with(id: str, entry: str | Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Any]:
    """What makes the environment of `module:function` with these options. It raises ConfigError if it does not take them, or a package is
    missing (with what to install), and EnvError if anything else goes wrong."""
    return partial(_make, id, entry, dict(options))


def check_api(api: str) -> None:
    """Raises ConfigError for an interface that there is not."""
    if api not in get_args(Api):
        raise ConfigError(f"api={api!r} was given; allowed: {', '.join(get_args(Api))}.")


def shown_as(render: bool) -> dict[str, str]:
    """The options that make an environment able to show itself, if it is to."""
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
    """Raises ConfigError, with the nearest one, for an option that neither the environment nor `Sides` has."""
    parameters = inspect.signature(creator).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := sorted(set(options) - set(parameters)):
        known = {*parameters, *(field.name for field in fields(Sides)), "api"}
        raise ConfigError(f"{id} has no option {unknown[0]!r}{nearest(unknown[0], known)}")


def _bare(env: Any) -> tuple[Any, bool, bool]:
    """(the environment without PettingZoo's wrappers, whether it is played in cycles, whether actions are clipped into their spaces).

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
    """All that may ever appear. Raises EnvError if it does not say, or names one twice."""
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise EnvError(f"{id} has no possible_agents; Ludus needs all agents that may ever appear, from the beginning.")
    if not isinstance(agents, Iterable) or len(set(map(str, agents))) < len(list(agents)):
        raise EnvError(f"{id} has possible_agents={agents!r}; expected a list of different names.")
    return list(agents)


def _ordered(agents: list[Any], order: Sequence[str] | None) -> list[Any]:
    """Agents in the order of their names, if these are their names; else as they are, and whoever asked finds others."""
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
    """What the first reset tells each agent."""
    try:
        answer = env.reset(seed=0)
        if answer is not None:
            check_mappings("reset", answer, RESET_ALL)
        infos = env.infos if answer is None else answer[1]
    except Flaw as flaw:
        raise EnvError(f"{id} {flaw}.") from None
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    if not isinstance(infos, Mapping):
        raise EnvError(f"{id} gave the infos {infos!r} after a reset; expected a mapping of agents.")
    return infos


def _state_space(env: Any, id: str) -> Space[Any]:
    """The space of `env.state()`. Raises EnvError if there is none."""
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
