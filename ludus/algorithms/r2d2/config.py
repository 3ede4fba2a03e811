"""Configuration of R2D2."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.dqn.config import QLearning
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import QHeadSpec, action_values_spec
from ludus.replay.base import ItemUnit


class R2D2(QLearning):
    """Recurrent deep Q-learning from replayed sequences (Kapturowski et al. 2019); see the README beside it. See
    `QLearning` for the inherited options.

    Attributes:
        core: Recurrent cell, "gru" or "lstm".
        memory: Units of the cell.
        length: Decisions of a sequence that are learned from; 80 in the paper, less for short episodes.
        period: Decisions from the start of one sequence to the next; half of `length` as in the paper, at most
            `length`.
        burn_in: Decisions before a sequence that only refresh the memory; 40 in the paper.
        rescale: Whether values are learned as h(value), which compresses large ones.
        rescale_epsilon: ε of h; 1e-3 in the paper.
        priority_mix: η: weight of the largest error in a sequence's priority; the rest is the mean's.
        capacity: Sequences in the replay table.
        batch: Sequences per update; 64 in the paper.
        priority_exponent: Exponent of errors in replay's priorities; 0.9 in the paper.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=True, masks=True, paper="Kapturowski et al. 2019"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.r2d2.learner:R2D2Learner"

    core: Literal["gru", "lstm"] = "lstm"
    memory: int = Field(default=64, ge=1)
    length: int = Field(default=40, ge=1)
    period: int = Field(default=20, ge=1)
    burn_in: int = Field(default=20, ge=0)
    rescale: bool = True
    rescale_epsilon: float = Field(default=1e-3, gt=0)
    priority_mix: float = Field(default=0.9, ge=0, le=1)

    dueling: bool = True
    n_step: int = Field(default=5, ge=1)
    gamma: float = Field(default=0.997, ge=0, le=1)
    capacity: int = Field(default=10_000, ge=1)
    batch: int = Field(default=64, ge=1)
    priority_exponent: float = Field(default=0.9, ge=0, le=1)
    importance: Scheduled = Schedule(start=0.6)
    learning_rate: Scheduled = Schedule(start=1e-3)
    target_period: int = Field(default=100, ge=1)

    @model_validator(mode="after")
    def _check_period(self) -> R2D2:
        if not self.share_weights:
            raise ValueError("networks that remember are shared by all agents; leave share_weights at true")
        if self.period > self.length:
            raise ValueError(
                f"period {self.period} is longer than the length {self.length} of sequences, so that the decisions in "
                "between would be in no sequence; make it at most the length"
            )
        return self

    @property
    def item(self) -> ItemUnit:
        return "segment"

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        head = QHeadSpec(dueling=self.dueling)
        return action_values_spec(**self._inputs(env, seats), head=head, core=self.core, width=self.memory)
