"""What runs in an actor's process: it holds one part. Nothing heavy is imported here; a part brings what it needs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RaySystemError
from threadpoolctl import threadpool_limits

from ludus.core.machine import reserve_stack
from ludus.runtime.exceptions import THREADS, PackedException, pack_exception


class Host:
    """The actor. Neither making it nor `begin` raises what the part raises: that waits for the first call."""

    def __init__(self) -> None:
        self._made = threading.Event()
        self._part: Any = None
        self._flaw: PackedException | None = None
        os.environ.update(
            dict.fromkeys(THREADS, "1")
        )  # before torch is loaded, which reads it once; Ray puts num_cpus there
        threadpool_limits(limits=1)  # what Ray has loaded already
        if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):  # Ray hides GPUs only from who asks for some
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
            self._flaw = pack_exception(loading_error(error))
        self._made.set()

    @reserve_stack
    def call(self, method: str, *args: Any) -> Any:
        """`part.method(*args)`. Raises PackedException with whatever that, or making the part, raised."""
        self._made.wait()  # calls that run at the same time may come before it
        if self._flaw is not None:
            raise self._flaw
        try:
            return getattr(self._part, method)(*args)
        except Exception as error:  # noqa: BLE001  (carried)
            raise pack_exception(loading_error(error)) from None

    def heartbeat(self) -> Any:
        """Return what the part says beside its calls; None before it is made."""
        return None if self._part is None else self._part.heartbeat()


def loading_error(error: Exception) -> Exception:
    """Return what was raised where Ray could not load a value; anything else as it is."""
    raised = error.client_exc if isinstance(error, RaySystemError) else None
    return raised if isinstance(raised, Exception) else error
