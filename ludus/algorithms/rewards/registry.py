"""Learned rewards by name, and as data: `rnd`, `{kind: rnd, features: 32}`, `{kind: my.module:Class}`, or an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from ludus.algorithms.rewards.base import LearnedRewardOptions
from ludus.core.errors import ConfigError
from ludus.core.parts import Registry, build_part, dump_part
from ludus.core.user_code import qualified_name

_OWN: Mapping[str, str] = {}  # those that there are lie in `ludus.contrib`
LEARNED_REWARDS: Final = Registry("learned reward", "ludus.learned_rewards", _OWN)
"""By name, by entry points. Of one's own: `module:Class`, derived from `LearnedRewardOptions`."""


def parse_learned_reward(value: Any) -> LearnedRewardOptions | None:
    """Return a learned reward from a name, `module:Class`, a mapping with `kind` and options, or an object. Raise
    ConfigError for anything else, UnknownName for an unknown name."""
    if value is None:
        return None
    part = build_part("learned reward", value, LEARNED_REWARDS, (LearnedRewardOptions,))
    if not isinstance(part, LearnedRewardOptions):
        raise ConfigError(
            f"{qualified_name(part)!r} is no learned reward: derive it from ludus.algorithms.rewards.base.LearnedRewardOptions, "
            f"with its options "
            "as fields."
        )
    return part


LearnedRewardChoice = Annotated[
    Any,
    BeforeValidator(parse_learned_reward),
    PlainSerializer(lambda part: dump_part(part, LEARNED_REWARDS), when_used="unless-none"),
]
"""A field that takes one of `LEARNED_REWARDS`, or none."""
