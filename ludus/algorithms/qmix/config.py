"""Settings of value decomposition: VDN, QMIX, QPLEX, weighted QMIX, and CDS."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, Collect
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import players_of
from ludus.algorithms.common.team_specs import Normalise, check_state, check_team, team_size
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
    """Value decomposition networks (Sunehag et al. 2018): the team's value is the sum of its agents'; see the README beside it."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=True, masks=True, paper="Sunehag et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.qmix.learner:make_learner"

    for_teams: ClassVar[bool] = True  # of little use to single agents

    mixer: Mixer = "sum"  # how the team's value is made of its agents': their sum, QMIX's network, or QPLEX's
    mixing_width: int = Field(default=32, ge=1)  # hidden units of the monotonic mixer
    mixing_hidden: int = Field(default=64, ge=0)  # of the networks that make a mixer's weights; 0: they are linear
    mixing_heads: int = Field(default=4, ge=1)  # of the duplex mixer's attention to what all agents do
    weighting: Weighting = "none"  # which errors count whole, in weighted QMIX; "none": all of them
    least_weight: float = Field(default=0.1, ge=0, le=1)  # what the other errors count
    central_width: int = Field(
        default=256, ge=1
    )  # hidden units of the unrestricted mixer, by which weighted QMIX judges
    individual: bool = False  # each agent adds values of its own to those of the network that all share
    individual_cost: float = Field(default=0.1, ge=0)  # of the mean size of what it adds
    diversity: float = Field(default=0.0, ge=0)  # weight of CDS's intrinsic reward beside the team's; 0: none
    diversity_scale: float = Field(default=0.5, gt=0)  # β₁: of values in an agent's softmax, and of what it predicts
    diversity_actions: float = Field(default=1.0, ge=0)  # β₂: of actions beside observations
    predictor_width: int = Field(default=128, ge=1)  # hidden units of the networks that predict observations

    core: Core = "none"  # a cell that remembers; then joint sequences are replayed, as R2D2 does
    memory: int = Field(default=64, ge=1)  # units of the cell
    length: int = Field(default=25, ge=1)  # joint steps of a sequence that are learned from
    period: int = Field(default=25, ge=1)  # joint steps from one sequence's beginning to the next one's
    burn_in: int = Field(default=0, ge=0)  # joint steps before them that only refresh the memory

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64, 64)
    gamma: float = Field(default=0.99, ge=0, le=1)
    rollout: int = Field(default=8, ge=1)
    capacity: int = Field(default=100_000, ge=1)  # joint steps, or sequences, in the replay table
    batch: int = Field(default=256, ge=1)  # joint steps, or sequences, per update
    updates_per_decision: float = Field(default=0.02, gt=0)  # decisions of single agents
    learning_rate: Scheduled = Schedule(start=5e-4)
    epsilon: Scheduled = Schedule(start=1.0, end=0.05, over=0.3)
    target_period: int = Field(default=200, ge=1)
    normalise_rewards: Normalise = "standardise"  # use "scale" or "none" where actions decide how long episodes are

    @model_validator(mode="after")
    def _check_memory(self) -> VDN:
        if self.core != "none" and not self.share_weights:
            raise ValueError(
                f"core={self.core} needs share_weights=true: networks that remember are shared by all agents"
            )
        if self.core != "none" and self.period > self.length:
            raise ValueError(
                f"period {self.period} is longer than the length {self.length} of sequences, so that nobody would learn from the joint "
                "steps in between; make it at most the length"
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
        """As `QLearning.check`; and raises ScenarioError for a compiled game, and, if the mixer needs it, for one without a state."""
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
        """Whether a mixer sees the environment's state."""
        return self.mixer != "sum" or self.weighting != "none"

    def collect(self) -> Collect:
        return replace(super().collect(), state=self.needs_state)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        team_size(env, seats, algorithm=type(self).__name__)
        inputs, head = self._inputs(env, seats), QHeadSpec(dueling=self.dueling)
        agents, individual = self._networks(env, seats), self._individual(env, seats)
        return action_values_spec(
            **inputs, head=head, core=self.core, width=self.memory, agents=agents, individual=individual
        )

    def check_start(self, env: VectorEnv) -> None:
        """As `QLearning.check_start`, also where agents add values of their own."""
        super().check_start(env)
        if self.individual:
            check_first_ids(env, algorithm=type(self).__name__, option=_INDIVIDUAL)

    def _individual(self, env: EnvSpec, seats: tuple[int, ...]) -> int:
        """How many agents add values of their own; 1: none."""
        if not self.individual:
            return 1
        return separate_networks(env, seats, algorithm=type(self).__name__, option=_INDIVIDUAL)


class QMIX(VDN):
    """The team's value is a monotonic function of its agents', whose weights depend on the environment's state (Rashid et al. 2018)."""

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2018")

    mixer: Mixer = "monotonic"


class CWQMIX(QMIX):
    """QMIX whose targets are those of an unrestricted network, and whose errors count little where the team did something else than its
    best and the target is no better than that: centrally-weighted QMIX (Rashid et al. 2020)."""

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2020, centrally weighted")

    weighting: Weighting = "central"


class OWQMIX(QMIX):
    """QMIX whose targets are those of an unrestricted network, and whose errors count little where the team's value is above its target:
    optimistically-weighted QMIX (Rashid et al. 2020)."""

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Rashid et al. 2020, optimistically weighted")

    weighting: Weighting = "optimistic"


class QPLEX(VDN):
    """The team's advantage is a weighted sum of its agents', whose weights see the state and what all agents do, so that any values are
    expressed whose best actions are the agents' best (Wang et al. 2021)."""

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Wang et al. 2021")

    mixer: Mixer = "duplex"


class CDSQMIX(QMIX):
    """QMIX whose agents share a network and add values of their own, and are rewarded for differing: CDS (Li et al. 2021)."""

    about: ClassVar[AlgorithmInfo] = replace(VDN.about, paper="Li et al. 2021")

    individual: bool = True
    diversity: float = Field(default=0.05, ge=0)
