"""Exceptions on their way from one process to another, in a form that always survives it."""

from __future__ import annotations

import traceback

import cloudpickle

THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What numerical libraries ask how many threads they may have. Parts in processes of their own have one."""


class PackedException(Exception):
    """An exception, packed.

    data: (class, args, attributes) pickled, None if even that cannot be. name, message, text: class, message and traceback in words.
    """

    def __init__(self, data: bytes | None, name: str, message: str, text: str) -> None:
        super().__init__(data, name, message, text)
        self.data, self.name, self.message, self.text = data, name, message, text

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class RemoteTraceback(Exception):
    """Where it was raised, in words: the cause of an exception that came from another process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


def pack_exception(error: Exception) -> PackedException:
    """Return the exception, packed. Its own pickling is not relied on: it fails for classes whose arguments are not their message's."""
    text = "".join(traceback.format_exception(error))
    data: bytes | None
    try:
        data = cloudpickle.dumps((type(error), error.args, vars(error)))
        cloudpickle.loads(data)
    except Exception:  # noqa: BLE001  an attribute that cannot be pickled: its words must do
        data = None
    return PackedException(data, type(error).__name__, str(error), text)


def unpack(carried: PackedException) -> Exception | None:
    """Return the original exception, or None where it could not be packed or its class is not known here."""
    if carried.data is None:
        return None
    try:
        kind, args, attributes = cloudpickle.loads(carried.data)
        error: Exception = kind.__new__(kind, *args)
        error.args = args
        vars(error).update(attributes)
    except Exception:  # noqa: BLE001  a class that is not installed here
        return None
    return error if str(error) == carried.message else None
