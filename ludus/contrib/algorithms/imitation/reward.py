"""Rewards of adversarial imitation: the discriminator takes its steps on a rollout, then says what the rollout earned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.rewards.base import Floats, LearnedRows, LogProb
from ludus.backend.device import to_device
from ludus.contrib.algorithms.imitation.discriminator import (
    Compared,
    Discriminator,
    PlainDiscriminator,
    ShapedDiscriminator,
    absorbing_state_return,
    discriminator_loss,
    gail_reward,
    penalty,
)
from ludus.contrib.algorithms.imitation.expert import chosen, expert_steps, fingerprint
from ludus.contrib.algorithms.learned_rewards.fitting import Index, TrainableModule
from ludus.contrib.algorithms.learned_rewards.inputs import Actions, Observations, Steps, in_parts, masks_of
from ludus.core import seeding
from ludus.core.errors import ConfigError, TrainingError
from ludus.core.types import Array, Metrics, State
from ludus.policies.bodies import own_stream
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement
    from ludus.contrib.algorithms.imitation.config import AIRL, GAIL, Adversarial

_FAR = 30.0  # logs of probabilities beyond ± this are as good as infinite


class AdversarialReward:
    """What both kinds share. Subclasses say what the module is, its logits and the rewards of them."""

    name: str

    def __init__(self, config: Adversarial, context: LearnerContext, placement: Placement, *, gamma: float) -> None:
        self._options, self._env, self._seed, self._rollouts = config, context.env, context.seed, 0
        self._gamma = gamma
        what, device = type(config).__name__, placement.torch
        self._observations = Observations(
            context.env, context.seats, what=what, normalise=config.normalise_observations, device=device
        )
        self._actions = Actions(context.env, context.seats, what=what, device=device)
        path = Path(config.demonstrations)
        self._expert = expert_steps(
            path, context.env, context.seats, policies=config.policies, episodes=config.episodes
        )
        self._expert_ends = self._ends(self._expert)
        self._observations.update_statistics(self._expert.observation)
        with own_stream(seeding.key(context.seed, self.name, "weights") % 2**63):
            module = self.discriminator(self._observations.shape, self._actions.width)
        self._trainer = TrainableModule(module, placement, seed=context.seed, name=self.name)
        self.module = module
        self.metrics: Metrics = {}

    def discriminator(self, shape: tuple[int, ...], actions: int) -> Discriminator:
        """Return a fresh discriminator, from torch's stream."""
        raise NotImplementedError

    def logits(self, rows: Compared) -> Tensor:
        """Return the logits [n] of D, the probability that a row is the file's."""
        raise NotImplementedError

    def rewards(self, rows: Compared) -> Tensor:
        """Return rewards [n]."""
        raise NotImplementedError

    def expert_logp(self, steps: Steps, log_prob: LogProb | None) -> Floats:
        """Return log π float64[n] of the file's decisions, where the kind uses it."""
        return np.zeros(len(steps))

    def of(self, rows: Trajectories, game: Floats, log_prob: LogProb | None = None) -> LearnedRows:
        config = self._options
        steps = Steps.of(rows, enumerated=self._observations.enumerated)
        if not len(steps):
            return LearnedRows(config.extrinsic * game)
        self._observations.update_statistics(steps.observation)
        rng = seeding.generator(self._seed, self.name, "experts", self._rollouts)
        ends = self._ends(steps)
        index = rng.integers(len(self._expert) + len(self._expert_ends), size=len(steps) + len(ends))
        states, behind = index[index < len(self._expert)], index[index >= len(self._expert)] - len(self._expert)
        expert = chosen(self._expert, states)
        expert_rows = self._to_device(
            expert, self.expert_logp(expert, log_prob), chosen(self._expert, self._expert_ends[behind])
        )
        policy_rows = self._to_device(steps, rows.logp.astype(np.float64), chosen(steps, ends))
        losses = self._learn(expert_rows, policy_rows)
        judged = in_parts(lambda part: self.rewards(self._rows(policy_rows, part)), len(steps) + len(ends))
        reward = judged[: len(steps)]
        if len(ends):
            reward[ends] += absorbing_state_return(judged[len(steps) :], gamma=self._gamma)
        if not np.isfinite(reward).all():
            raise TrainingError(f"{self.name}: a reward became NaN or infinite; look at the observations.")
        self._rollouts += 1
        means = {"game_reward": float(game.mean()), "learned_reward": float(reward.mean())}
        self.metrics = {**means, **losses}
        return LearnedRows(config.extrinsic * game + config.coefficient * reward)

    def _ends(self, steps: Steps) -> Index:
        """Return the steps int64[k] after which an absorbing state is added."""
        return np.flatnonzero(steps.ended & self._options.absorbing)

    def _to_device(self, steps: Steps, logp: Floats, ended: Steps) -> Compared:
        """Return the rows on the device, observations not normalised, followed by the absorbing state once for each
        episode that ended."""
        pairs = zip(_columns(steps), _columns(ended), strict=True)
        observation, action, after, over = [np.concatenate(pair) if len(ended) else pair[0] for pair in pairs]
        absorbing = np.append(np.zeros(len(steps)), np.ones(len(ended)))
        probability = np.append(np.clip(logp, -_FAR, _FAR), np.zeros(len(ended)))
        floats = np.stack([absorbing, over, probability]).astype(np.float32)
        flags = to_device(floats, self._observations.device).unbind()
        to_tensor = self._observations.to_tensor
        return Compared(to_tensor(observation), self._actions.to_tensor(action), flags[0], to_tensor(after), *flags[1:])

    def _rows(self, compared: Compared, part: slice | Index) -> Compared:
        """Return some of the rows as networks see them."""
        rows = Compared(*(column[part] for column in compared))
        normalize = self._observations.normalize
        return rows._replace(observation=normalize(rows.observation), after=normalize(rows.after))

    def _learn(self, expert: Compared, policy: Compared) -> Metrics:
        config = self._options

        def loss(part: Index, rng: np.random.Generator) -> list[Tensor]:
            one, other = self._rows(expert, part), self._rows(policy, part)
            logits = self.logits(Compared(*(torch.cat(pair) for pair in zip(one, other, strict=True))))
            expert_logits, policy_logits = logits[: len(part)], logits[len(part) :]
            adversarial = discriminator_loss(expert_logits, policy_logits)
            right = [(expert_logits > 0).float().mean(), (policy_logits < 0).float().mean()]
            total = adversarial
            if config.gradient_penalty > 0.0:
                share = to_device(rng.random(len(part), dtype=np.float32), adversarial.device)
                total = adversarial + config.gradient_penalty * penalty(self.module, one, other, share).mean()
            return [total, adversarial, *right]

        means = self._trainer.learn(
            loss,
            len(policy.logp),
            epochs=config.epochs,
            batch=config.batch,
            rate=config.learning_rate,
            max_norm=config.max_gradient_norm,
        )
        names = ("discriminator_loss", "expert_accuracy", "policy_accuracy")
        return {} if means is None else dict(zip(names, means[1:], strict=True))

    def state_dict(self) -> State:
        return {
            "observations": self._observations.state_dict(),
            "discriminator": self._trainer.state_dict(),
            "rollouts": self._rollouts,
            "demonstrations": fingerprint(self._expert),
        }

    def load_state_dict(self, state: State) -> None:
        """Raise ConfigError where the file is no longer the one that was learned from."""
        if int(state["demonstrations"]) != fingerprint(self._expert):
            raise ConfigError(
                f"learned_reward.demonstrations {self._options.demonstrations!r} has other decisions than when this learner was saved; "
                "give it the file that it had."
            )
        self._observations.load_state_dict(state["observations"])
        self._trainer.load_state_dict(state["discriminator"])
        self._rollouts = int(state["rollouts"])


class GAILReward(AdversarialReward):
    """Rewards of D(s, a)."""

    name = "gail"

    def __init__(self, config: GAIL, context: LearnerContext, placement: Placement, *, gamma: float) -> None:
        self._config = config
        super().__init__(config, context, placement, gamma=gamma)

    def discriminator(self, shape: tuple[int, ...], actions: int) -> Discriminator:
        return PlainDiscriminator(self._config, shape, actions)

    def logits(self, rows: Compared) -> Tensor:
        return self.module(rows)  # type: ignore[no-any-return]

    def rewards(self, rows: Compared) -> Tensor:
        return gail_reward(self.logits(rows), form=self._config.form)


class AIRLReward(AdversarialReward):
    """Rewards of f and log π: D = exp f / (exp f + π), whose logit is f - log π. The policy's rows have the
    log-probabilities of the policy that acted."""

    name = "airl"

    def __init__(self, config: AIRL, context: LearnerContext, placement: Placement, *, gamma: float) -> None:
        self._config = config
        super().__init__(config, context, placement, gamma=gamma)

    def discriminator(self, shape: tuple[int, ...], actions: int) -> Discriminator:
        return ShapedDiscriminator(self._config, shape, actions, gamma=self._gamma)

    def logits(self, rows: Compared) -> Tensor:
        out: Tensor = self.module(rows) - rows.logp
        return out

    def rewards(self, rows: Compared) -> Tensor:
        if self._config.form == "unshaped":
            assert isinstance(self.module, ShapedDiscriminator)
            return self.module.unshaped(rows)
        return self.logits(rows) + (rows.logp if self._config.form == "shaped" else 0.0)

    def expert_logp(self, steps: Steps, log_prob: LogProb | None) -> Floats:
        if log_prob is None:
            raise ConfigError(
                "airl compares with log-probabilities of the policy, and this learner says none; use gail."
            )
        return log_prob(steps.observation, steps.action, masks_of(self._env, steps))


def _columns(steps: Steps) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Return the compared columns of steps: observation, action, after, and whether an end follows. An unknown next
    observation is replaced by the present one."""
    after = steps.after if steps.known.all() else np.where(steps.known, steps.after, steps.observation)  # of ids
    return steps.observation, steps.action, after, steps.ended
