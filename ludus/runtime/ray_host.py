"""What runs in an actor's process: it holds one part. Nothing heavy is imported here; a part brings what it needs."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RaySystemError
from threadpoolctl import threadpool_limits

THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Carried(Exception):
    """An exception on its way out of a process, in a form that always survives it.

    data: (class, args, attributes) pickled, None if even that cannot be. name, message, text: class, message and traceback in words.
    """

    def __init__(self, data: bytes | None, name: str, message: str, text: str) -> None:
        super().__init__(data, name, message, text)
        self.data, self.name, self.message, self.text = data, name, message, text

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class Host:
    """The actor. Neither making it nor `begin` raises what the part raises: that waits for the first call."""

    def __init__(self) -> None:
        self._made = threading.Event()
        self._part: Any = None
        self._flaw: Carried | None = None
        os.environ.update(
            dict.fromkeys(THREADS, "1")
        )  # before torch is loaded, which reads it once; Ray puts num_cpus there
        threadpool_limits(limits=1)  # what Ray has loaded already
        if (
            not ray.get_runtime_context().get_accelerator_ids().get("GPU")
        ):  # Ray hides cards only from who asks for some
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def place(self) -> tuple[int, str]:
        """Process and node, by their ids: answered as soon as the process is there, before the part is made."""
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def begin(self, order: bytes, path: list[str]) -> None:
        """Make the part. order: (factory, spec), pickled in one piece, so that arrays of the spec may be written to. path: where the
        driver finds modules."""
        sys.path.extend(entry for entry in path if entry not in sys.path)
        try:
            factory: Callable[[Any], Any]
            factory, spec = cloudpickle.loads(order)
            self._part = factory(spec)
        except Exception as error:  # noqa: BLE001  (held for the calls)
            self._flaw = carry(error)
        self._made.set()

    def call(self, method: str, *args: Any) -> Any:
        """`part.method(*args)`. Raises Carried with whatever that, or making the part, raised."""
        self._made.wait()  # calls that run at the same time may come before it
        if self._flaw is not None:
            raise self._flaw
        try:
            return getattr(self._part, method)(*args)
        except Exception as error:  # noqa: BLE001  (carried)
            raise carry(error) from None

    def pulse(self) -> Any:
        """What the part says beside its calls; None before it is made."""
        return None if self._part is None else self._part.pulse()


def carry(error: Exception) -> Carried:
    """The exception, packed. Its own pickling is not relied on: it fails for classes whose arguments are not their message's."""
    error = loading_error(error)
    text = "".join(traceback.format_exception(error))
    data: bytes | None
    try:
        data = cloudpickle.dumps((type(error), error.args, vars(error)))  # type: ignore[no-untyped-call]
        cloudpickle.loads(data)
    except Exception:  # noqa: BLE001  an attribute that cannot be pickled: its words must do
        data = None
    return Carried(data, type(error).__name__, str(error), text)


def loading_error(error: Exception) -> Exception:
    """What was raised where Ray could not load a value; anything else as it is."""
    raised = error.client_exc if isinstance(error, RaySystemError) else None
    return raised if isinstance(raised, Exception) else error


def unpack(carried: Carried) -> Exception | None:
    """The original exception, or None where it could not be packed or its class is not known here."""
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
