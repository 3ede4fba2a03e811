"""Ray's exceptions, turned into those that a part raised or that `Runtime.get` promises."""

from __future__ import annotations

from ray import exceptions as ray_exceptions

from ludus.errors import PartDied, RunError
from ludus.runtime.ray_host import Carried, loading_error, unpack

_DEATHS = (
    ray_exceptions.RayActorError,
    ray_exceptions.NodeDiedError,
    ray_exceptions.OutOfMemoryError,
    ray_exceptions.WorkerCrashedError,
)


class RemoteTraceback(Exception):
    """Where it was raised, in words: the cause of an exception that came from another process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


def is_death(error: Exception, actor: str) -> bool:
    """Whether the actor with this id died before it had answered; for a call, one that an argument was to come from may have instead."""
    return isinstance(error, _DEATHS) and getattr(error, "actor_id", None) in (None, actor)


def reason(error: Exception) -> str:
    """The sentence or two in which Ray says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("The actor is dead because")), lines[0] if lines else "")
    told = told.partition(" is unavailable: ")[2] or told.removeprefix("The actor is dead because ")
    return told.partition(" Some common causes")[0][:300].rstrip(".")


def translate(error: Exception) -> Exception:
    """What to raise instead of an exception of Ray's, with the remote traceback as its cause."""
    inner: Exception = error
    while isinstance(inner, ray_exceptions.RayTaskError) and isinstance(inner.cause, Exception):
        inner = inner.cause
    inner = loading_error(inner)
    if isinstance(inner, Carried):
        original = unpack(inner) or RunError(
            f"a part raised {inner.name}, which cannot be carried between processes: {inner.message}"
        )
        original.__cause__ = RemoteTraceback(inner.text)
        return original
    if isinstance(inner, _DEATHS):
        return _because(PartDied(f"an argument came from a part that died: {reason(inner)}."), error)
    if isinstance(inner, ray_exceptions.ObjectLostError):
        return _because(PartDied(f"the value was lost with the node that held it: {reason(inner)}."), error)
    if isinstance(inner, ray_exceptions.RayError):
        return _because(RunError(f"Ray could not do it ({type(inner).__name__}): {reason(inner)}."), error)
    return _because(inner, error)


def _because(raised: Exception, error: Exception) -> Exception:
    if raised is not error:
        raised.__cause__ = RemoteTraceback(str(error))
    return raised
