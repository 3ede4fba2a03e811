"""Configurations of value decomposition: VDN, QMIX, QPLEX, weighted QMIX, and CDS."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import NormalizeRewards, check_state, check_team, players_of, team_size
from ludus.algorithms.dqn.config import QLearning
from ludus.algorithms.on_policy.multi_agent import check_first_ids, separate_networks
from ludus.core.config import refuse_unread
from ludus.core.types import EnvSpec, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.policies.specs import Core, QHeadSpec, action_values_spec
from ludus.replay.base import ItemUnit

Mixer = Literal["sum", "monotonic", "duplex"]
Weighting = Literal["none", "central", "optimistic"]
_INDIVIDUAL = "individual=true"


class VDN(QLearning):
    """Value decomposition networks (Sunehag et al. 2018): the team's value is the sum of its agents'; see the README
    beside it. See `QLearning` for the inherited options.

    Attributes:
        mixer: How the team's value is made of the agents': "sum", QMIX's "monotonic" network, or QPLEX's "duplex" one.
        mixing_width: Hidden units of the monotonic mixer; 32 in the paper.
        mixing_hidden: Hidden units of the hypernetworks that make a mixer's weights; 0: they are linear.
        mixing_heads: Heads of the duplex mixer's attention to the joint action.
        weighting: Which errors count fully in weighted QMIX: "central" or "optimistic" ones; "none": all of them.
        least_weight: Weight of the other errors; 0.1 to 0.75.
        central_width: Hidden units of weighted QMIX's unrestricted mixer; 256 in the paper.
        individual: Whether each agent adds values of its own to those of the shared network (CDS).
        individual_cost: Weight of the mean size of these own values in the loss.
        diversity: Weight of CDS's intrinsic reward; 0: none.
        diversity_scale: β₁: scale of values in an agent's softmax, and of the agent's own prediction.
        diversity_actions: β₂: weight of the diversity of actions relative to that of observations.
        predictor_width: Hidden units of the networks that predict next observations.
        core: Recurrent cell of the agents' network; then joint sequences are replayed, as in R2D2.
        memory: Units of the cell.
        length: Joint steps of a sequence that are learned from.
        period: Joint steps from the start of one sequence to the next; at most `length`.
        burn_in: Joint steps before a sequence that only refresh the memory.
        capacity: Joint steps, or sequences, in the replay table.
        batch: Joint steps, or sequences, per update.
        updates_per_decision: Updates per decision of a single agent.
        normalise_rewards: "standardise" subtracts the mean and divides by the deviation, which is fast; use "scale" or
            "none" where actions determine the length of episodes.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=True, masks=True, paper="Sunehag et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.qmix.learner:make_learner"

    for_teams: ClassVar[bool] = True  # of little use to single agents

    mixer: Mixer = "sum"
    mixing_width: int = Field(default=32, ge=1)
    mixing_hidden: int = Field(default=64, ge=0)
    mixing_heads: int = Field(default=4, ge=1)
    weighting: Weighting = "none"
    least_weight: float = Field(default=0.1, ge=0, le=1)
    central_width: int = Field(default=256, ge=1)
    individual: bool = False
    individual_cost: float = Field(default=0.1, ge=0)
    diversity: float = Field(default=0.0, ge=0)
    diversity_scale: float = Field(default=0.5, gt=0)
    diversity_actions: float = Field(default=1.0, ge=0)
    predictor_width: int = Field(default=128, ge=1)

    core: Core = "none"
    memory: int = Field(default=64, ge=1)
    length: int = Field(default=25, ge=1)
    period: int = Field(default=25, ge=1)
    burn_in: int = Field(default=0, ge=0)

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    gamma: float = Field(default=0.99, ge=0, le=1)
    rollout: int = Field(default=8, ge=1)
    capacity: int = Field(default=100_000, ge=1)
    batch: int = Field(default=256, ge=1)
    updates_per_decision: float = Field(default=0.02, gt=0)
    learning_rate: Scheduled = Schedule(start=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.05, over=0.3)
    target_period: int = Field(default=200, ge=1)
    normalise_rewards: NormalizeRewards = "standardise"

    @model_validator(mode="after")
    def _check_memory(self) -> VDN:
        if self.core != "none" and not self.share_weights:
            raise ValueError(
                f"core={self.core} needs share_weights=true: networks that remember are shared by all agents"
            )
        if self.core != "none" and self.period > self.length:
            raise ValueError(
                f"period {self.period} is longer than the length {self.length} of sequences, so that the joint steps in "
                "between would be in no sequence; make it at most the length"
            )
        return self

    @model_validator(mode="after")
    def _check_diversity(self) -> VDN:
        if self.individual and not self.share_weights:
            raise ValueError("individual=true adds to a network that all agents share; leave share_weights true")
        if self.diversity and not self.individual:
            raise ValueError("diversity compares what each agent adds to the values; it needs individual=true")
        if self.diversity and self.n_step > 1:
            raise ValueError(f"diversity pays for what comes one step later; n_step is {self.n_step}, and must be 1")
        remembers, differs = self.core != "none", self.diversity > 0
        refuse_unread(
            self,
            {
                **{name: (remembers, "core=gru or lstm") for name in ("memory", "length", "period", "burn_in")},
                **{name: (differs, "diversity above 0") for name in ("diversity_scale", "diversity_actions")},
                "least_weight": (self.weighting != "none", "weighting=central or optimistic"),
                "individual_cost": (self.individual, _INDIVIDUAL),
                "mixing_heads": (self.mixer == "duplex", "mixer=duplex"),
            },
        )
        return self

    @property
    def item(self) -> ItemUnit:
        return "joint"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError as `QLearning.check` does, for a compiled game, and for one without a state if the mixer
        needs it."""
        name = type(self).__name__
        check_team(env, algorithm=name)
        super().check(env, seats)
        for player in players_of(env, seats):
            self._networks(env, (player,))
            self._individual(env, (player,))
        if self.needs_state:
            plain = "" if self.weighting == "none" else " and weighting=none"
            check_state(env, algorithm=name, instead=f"mixer=sum{plain} (vdn), which needs none")

    @property
    def needs_state(self) -> bool:
        """Return whether a mixer sees the environment's state."""
        return self.mixer != "sum" or self.weighting != "none"

    def collect(self) -> CollectConfig:
        return replace(super().collect(), state=self.needs_state)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        team_size(env, seats, algorithm=type(self).__name__)
        inputs, head = self._inputs(env, seats), QHeadSpec(dueling=self.dueling)
        agents, individual = self._networks(env, seats), self._individual(env, seats)
        return action_values_spec(
            **inputs, head=head, core=self.core, width=self.memory, agents=agents, individual=individual
        )

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError as `QLearning.check_start` does, also if agents add values of their own."""
        super().check_start(env)
        if self.individual:
            check_first_ids(env, algorithm=type(self).__name__, option=_INDIVIDUAL)

    def _individual(self, env: EnvSpec, seats: tuple[int, ...]) -> int:
        """Return the number of agents that add values of their own; 1: none do."""
        if not self.individual:
            return 1
        return separate_networks(env, seats, algorithm=type(self).__name__, option=_INDIVIDUAL)


class QMIX(VDN):
    """Value decomposition whose mixer is monotonic in the agents' values, with weights that depend on the environment's
    state (Rashid et al. 2018). See `VDN` for the options.

    Attributes:
        mixer: How the team's value is made of the agents'; the other options are those of `VDN`.
    """

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2018")

    mixer: Mixer = "monotonic"


class CWQMIX(QMIX):
    """Centrally-weighted QMIX (Rashid et al. 2020): targets are those of an unrestricted network, and an error has
    weight `least_weight` where the team did not take its best actions and the target is no better than them. See `VDN`
    for the options.

    Attributes:
        weighting: Which errors count fully; the other options are those of `QMIX`.
    """

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2020, centrally weighted")

    weighting: Weighting = "central"


class OWQMIX(QMIX):
    """Optimistically-weighted QMIX (Rashid et al. 2020): targets are those of an unrestricted network, and an error has
    weight `least_weight` where the team's value is above its target. See `VDN` for the options.

    Attributes:
        weighting: Which errors count fully; the other options are those of `QMIX`.
    """

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2020, optimistically weighted")

    weighting: Weighting = "optimistic"


class QPLEX(VDN):
    """Value decomposition whose team advantage is a weighted sum of the agents' advantages, with weights that depend on
    the state and the joint action, so that it can express all values whose best joint action consists of the agents'
    best ones (Wang et al. 2021). See `VDN` for the options.

    Attributes:
        mixer: How the team's value is made of the agents'; the other options are those of `VDN`.
    """

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Wang et al. 2021")

    mixer: Mixer = "duplex"


class CDSQMIX(QMIX):
    """QMIX whose agents share a network, add values of their own, and are rewarded for differing: CDS (Li et al. 2021).
    See `VDN` for the options; `diversity` 0.05 is in the paper's range of 0.03 to 0.1.

    Attributes:
        individual: Whether each agent adds values of its own; True.
        diversity: Weight of the intrinsic reward; the others are those of `QMIX`.
    """

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Li et al. 2021")

    individual: bool = True
    diversity: float = Field(default=0.05, ge=0)
