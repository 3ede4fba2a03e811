"""How the C library keeps the memory that torch frees."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
_MIB = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """From now on, this process keeps what was freed, up to 1 GiB at the end of its heap, where glibc would return it to the system at once
    and take it back page by page: learning from images frees and asks for the same tens of megabytes with every minibatch. Does nothing,
    and answers False, without glibc. Processes that only play have no need of it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    # What is larger than the last number still has a mapping of its own, which is returned: tables and the like. It is the largest that
    # is taken.
    settings = ((_TRIM_THRESHOLD, 1024 * _MIB), (_TOP_PAD, 64 * _MIB), (_MMAP_THRESHOLD, 32 * _MIB))
    return all([mallopt(option, value) == 1 for option, value in settings])
