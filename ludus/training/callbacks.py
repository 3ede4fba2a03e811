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
    """Progress of a training task at an iteration of learning.

    Attributes:
        task: The task.
        iteration: 1, 2, … of the task.
        updates: Optimizer steps in this iteration.
        metrics: The learner's newest metrics, and "return", the mean of its newest episodes.
        counters: env_steps, decisions, episodes, samples and updates since the task began.
    """

    task: TrainingTask
    iteration: int
    updates: int
    metrics: Metrics
    counters: Mapping[str, int]


@dataclass
class Callback:
    """Base of callbacks: derive a dataclass, whose fields are its options, and implement the hooks that you need.

    Hooks are called in the driver's process and thread, in order, so the run waits for them. Their arguments belong to the run: read them,
    and copy what you keep. They cannot change the run or end it; a stopper does that. An exception in a hook ends the run with a
    `CallbackError`, and the run can be resumed. A callback has no state in checkpoints: what comes after the last checkpoint is done, and
    reported, again in a resumed run.
    """

    def on_run_start(self, info: RunInfo, *, generation: int) -> None:
        """The run begins, or is resumed. Open files and begin counts here: one object may serve several runs in sequence.

        Args:
            info: Facts of the run.
            generation: Number of generations that are done.
        """

    def on_episodes(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """Training episodes have ended, n >= 1 of them in one batch of arrays, before they are learned from.

        Args:
            task: That they were played for.
            episodes: Their results.
        """

    def on_update(self, update: UpdateRecord) -> None:
        """A learner has learned from an iteration's data, in one step or in many.

        Args:
            update: Metrics and counters.
        """

    def on_task(self, result: TaskResult) -> None:
        """A task is done.

        Args:
            result: A `TrainingResult` with a policy, or an `EvaluationResult` with matches or a meta-strategy.
        """

    def on_generation(self, record: GenerationRecord) -> None:
        """A generation is done; generation 0 has the first policies.

        Args:
            record: Of the generation.
        """

    def on_run_end(self, summary: RunSummary) -> None:
        """The run is over, or was stopped. Not called where it ends with an error.

        Args:
            summary: Of the run.
        """


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class CallbackObserver(NullObserver):
    """Several callbacks as one observer, called in the order given, also with episodes and updates."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = tuple(callbacks)

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._tell("on_run_start", info, generation=generation)

    def episodes_done(self, task: TrainingTask, episodes: EpisodeResults) -> None:
        """Report the episodes of an iteration, if any has ended."""
        if len(episodes.index):
            self._tell("on_episodes", task, episodes)

    def updated(self, update: UpdateRecord) -> None:
        """Report an update of a learner."""
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
    """Return callbacks from a value: `module:Class`, a mapping with `kind` and options, an object, or a list of these.

    Raises:
        ConfigError: For a value that is none.
        UnknownName: For a name without a module.
    """
    if value is None:
        return ()
    return tuple(_parsed(item) for item in (value if isinstance(value, list | tuple) else (value,)))


def _parsed(value: Any) -> Callback:
    callback = build_part("callback", value, {}, (Callback,))
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
    """Check that each hook can be called; otherwise it would be found out when the run has lasted a while, or never."""
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
    """Return the mapping from which `parse_callbacks` makes an equal callback. Raises ConfigError for options that are no JSON values."""
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
