"""What processes that play share if they are forked: importing this loads it once, before the fork.

numba fills its registries when it first loads a compiled function, which takes a fifth of a second. That needs no thread and opens no file
that a copy of the process could not have.
"""

from numba.core.registry import cpu_target

import ludus.rollout.host  # noqa: F401

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
