"""Code of one's own that a run calls at episodes, updates, tasks and generations."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from ludus.core.errors import CallbackError, ConfigError, nearest
from ludus.core.parts import build_part
from ludus.core.types import Metrics, TaskResult, TrainingTask
from ludus.core.user_code import place
from ludus.storage.base import GenerationRecord, NullObserver, RunInfo, RunSummary

if TYPE_CHECKING:
    from ludus.rollout.base import EpisodeResults


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """What a training task has come to with an iteration of learning.

    iteration: 1, 2, … of the task. updates: steps of the optimizer in this iteration. metrics: the learner's newest, and "return", the mean
    of its newest episodes. counters: env_steps, decisions, episodes, samples and updates since the task began.
    """

    task: TrainingTask
    iteration: int
    updates: int
    metrics: Metrics
    counters: Mapping[str, int]


@dataclass
class Callback:
    """Base of callbacks: derive a dataclass, whose fields are its options, and write the hooks that you want.

    They are called in the driver's process and thread, one after the other, so the run waits for them. What they are given is the run's
    own: read it, and copy what you keep. They cannot change the run or end it; a stopper does that. What a hook raises ends the run with a
    `CallbackError`, and the run can be resumed. A callback has no state in checkpoints: what comes after the last of them is done, and
    told, again in a resumed run.
    """

    def on_run_start(self, info: RunInfo, *, generation: int) -> None:
        """The run begins, or goes on with so many generations done. The place to open files and to begin counts: one object may serve
        several runs, one after the other."""

    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """Training episodes have ended, n >= 1 of them in one batch of arrays: before they are learned from."""

    def on_update(self, update: UpdateRecord) -> None:
        """A learner has learned from an iteration's data, in one step or in many."""

    def on_task(self, result: TaskResult) -> None:
        """A task is done: a `TrainingResult` policy, or matches or a meta-strategy `EvaluationResult`."""

    def on_generation(self, record: GenerationRecord) -> None:
        """A generation is done; generation 0 has the first policies."""

    def on_run_end(self, summary: RunSummary) -> None:
        """The run is over, or was stopped. Not called where it ends with an error."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class CallbackObserver(NullObserver):
    """Several callbacks as one observer, told in the order given, and of more than observers are."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._tell("on_run_start", info, generation=generation)

    def episodes_done(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """Those of an iteration; nobody is told where none has ended."""
        if self._callbacks and len(episodes.index):
            self._tell("on_episodes", task, episodes)

    def updated(self, update: UpdateRecord) -> None:
        """A learner has learned."""
        self._tell("on_update", update)

    def task_done(self, result: TaskResult) -> None:
        self._tell("on_task", result)

    def generation_done(self, record: GenerationRecord) -> None:
        self._tell("on_generation", record)

    def run_finished(self, summary: RunSummary) -> None:
        self._tell("on_run_end", summary)

    def _tell(self, hook: str, *args: Any, **keywords: Any) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, hook)(*args, **keywords)
            except Exception as error:
                what = f"{type(error).__name__} in {hook}: {str(error).rstrip('.')}{place(error)}"
                raise CallbackError(
                    f"callback {_kind(type(callback))!r} raised {what}. What was committed is kept; `ludus resume` goes on from there."
                ) from error


# ---------------------------------------------------------------------------------------------- as parts of a scenario


def parse_callbacks(value: Any) -> tuple[Callback, ...]:
    """Callbacks by `module:Class`, as mappings with `kind` and options, or objects; one, or a list. Raises ConfigError for what is none,
    UnknownName for a name without a module."""
    if value is None:
        return ()
    return tuple(_parsed(item) for item in (value if isinstance(value, list | tuple) else (value,)))


def _parsed(value: Any) -> Callback:
    callback = build_part("callback", value, {})
    cls = type(callback)
    if not isinstance(callback, Callback):
        raise ConfigError(f"{_kind(cls)!r} is not a callback: derive it from ludus.Callback.")
    own = [base for base in cls.__mro__[: cls.__mro__.index(Callback)] if "__init__" in vars(base)]
    if any("__dataclass_fields__" not in vars(base) for base in own):
        raise ConfigError(
            f"callback {_kind(cls)!r} has an __init__ of its own. Options are the fields of a dataclass: write @dataclass above the class "
            "and no __init__; what a run begins with belongs into on_run_start."
        )
    if any(f.name == "kind" for f in dataclasses.fields(callback)):
        raise ConfigError(
            f"callback {_kind(cls)!r} has a field 'kind', which in a scenario names the class; give the field another name."
        )
    _check_hooks(callback)
    return callback


def _check_hooks(callback: Callback) -> None:
    """That each can be called; otherwise it would be found out when the run has lasted a while, or never."""
    kind = _kind(type(callback))
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS:
            raise ConfigError(f"callback {kind!r} has a hook {name!r}, which nobody calls{nearest(name, HOOKS)}")
    for name in HOOKS:
        _, *wanted = inspect.signature(getattr(Callback, name)).parameters.values()
        try:
            inspect.signature(getattr(callback, name)).bind(
                *(p.name for p in wanted if p.kind is not p.KEYWORD_ONLY),
                **{p.name: p for p in wanted if p.kind is p.KEYWORD_ONLY},
            )
        except TypeError as error:
            parameters = ", ".join(["self", *(f"*, {p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in wanted)])
            raise ConfigError(f"callback {kind!r} must have {name}({parameters}): {error}.") from error


def dump_callback(callback: Callback) -> dict[str, Any]:
    """The mapping that `parse_callbacks` makes an equal one from. Raises ConfigError for options that JSON has no values for."""
    options = {f.name: getattr(callback, f.name) for f in dataclasses.fields(callback) if f.init}
    try:
        plain = {name: to_jsonable_python(option) for name, option in options.items()}
    except PydanticSerializationError as error:
        raise ConfigError(
            f"callback {_kind(type(callback))!r}: an option cannot be written into a scenario ({error})."
        ) from error
    return {"kind": _kind(type(callback)), **plain}


def _kind(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
