"""Where and how a scenario runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ludus.backend.device import parse_device, require_gpu
from ludus.core.config import LONGEST, Config
from ludus.core.errors import ConfigError
from ludus.core.parts import resolve_name
from ludus.core.types import CPU, DeviceChoice, Precision
from ludus.policies.bots import BotSettings
from ludus.rollout.async_limits import AsyncLimits
from ludus.runs.preloads import LEARNING, PLAYING
from ludus.runtime.base import Runtime

if TYPE_CHECKING:
    from ludus.rollout.inference.server import SharedInference
    from ludus.training.trainer import BatchPlacement


SHARDS, ENVS_OF_SHARD = 8, 4
"""Pieces that environments are cut into where there are processes to carry them, unless there are more workers or a scenario says how many;
and the environments that a piece then has at least."""


class Inference(Config):
    """Where policies are evaluated.

    Attributes:
        kind: local, a copy in each worker; or server, parts that batch the rows of many workers. A dead one is replaced as workers are.
        servers: Number of servers; by default one on each node that has workers.
        max_wait: Seconds that a request waits for others at most.
        max_batch: Rows of a batch at most.
        cpus: CPUs of a server.
        gpus: GPUs of a server; by default one where runtime.device is cuda.
    """

    kind: Literal["local", "server"] = "local"
    servers: int | None = Field(None, ge=1)
    max_wait: float = Field(0.002, ge=0)
    max_batch: int = Field(4096, ge=1)
    cpus: float = Field(1.0, ge=0)
    gpus: float | None = Field(None, ge=0)


def _inference(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _others(value: dict[str, float]) -> dict[str, float]:
    for name, key in (("num_cpus", "cpus"), ("num_gpus", "gpus")):
        if name in value:
            raise ConfigError(f"{name!r} was given; it has a key of its own, runtime.{key}.")
    return value


class RuntimeChoice(Config):
    """Where a run's parts live, and how they wait for each other.

    Attributes:
        kind: inprocess; processes, of this machine alone; ray; or `module:Class`.
        mode: sync: every worker plays with the newest weights and nobody learns before all are done; async: nobody waits for the slowest.
        workers: Processes that play.
        shards: Pieces that the environments are cut into, each with random streams of its own: results depend on them and not on the
            workers. By default 1 in one process, which is fastest there; as many as workers with mode async; elsewhere 8, of at least
            4 environments each, or as many as workers if those are more. There are at most as many as environments, and as decisions
            that an iteration collects.
        address: Of a running Ray (host:port, or auto); by default one is started on this machine.
        restarts: How often each worker is replaced when its process dies, or is stuck (`deadline`).
        deadline: Seconds without a step after which a worker is stuck and is replaced (null: never). A trainer that gives no answer for
            so long, and whose process does not say that it runs, ends the run; an update may take longer. `env.deadline` is of one step
            of an environment in a subprocess, `runtime.bots.deadline` of one move of a bot.
        cpus: CPUs that each worker asks for; processes ignore them.
        gpus: GPUs that each worker asks for; processes get whole ones.
        resources: What else a worker asks for, by name: memory in bytes, or a cluster's own.
        stop_within: Seconds that a run which a signal stops (Ctrl-C, SIGTERM, SIGHUP) waits for what it computes; then its process ends as
            by a kill, and nothing recorded is lost (null: any time).
        start_timeout: Seconds that a part may wait for its process.
        inference: Where policies are evaluated, local or server.
        tasks: Training tasks in progress at a time, over the same workers; by default 1 in one process (4 where a GPU may play whole
            games of a tree), otherwise 4.
        trainers: Processes that learn together from each batch of a task; 0: the driver learns.
        trainer_cpus: CPUs of each trainer.
        trainer_gpus: GPUs of each trainer; by default one where device is cuda.
        table_shards: Processes that learners' tables are spread over; 0: they lie beside the learner.
        replay: Where replayed experience lies: host memory, or as tensors on the learner's device, with room for the whole capacity; on a
            CPU both are memory.
        prefetch: Batches that are sampled, and moved to where they are learned from, ahead; by default 2 on a GPU, where they come from
            memory and no priorities choose them, else 0.
        threads: Threads where there is learning, in the driver or in each trainer: of torch, for learning from images, and of CPU kernels,
            which share out steps of more than 512 rows (their numbers do not depend on it). With smaller steps, more cost more than
            they save.
        device: Where learners and inference servers compute: auto, cpu, cuda or cuda:N (cuda, where Ray places them). auto takes a GPU,
            where there is one, for what is large enough (`ludus.backend.device`). Policies act where `acting` says.
        acting: Where policies act: auto, cpu or device. auto: on the GPU of runtime.device if all answers of a step are large enough for
            it, else on the CPU. cpu: on the CPU, and games are played in memory. device: wherever runtime.device says. Workers in
            processes of their own act on the CPU, unless they have `gpus`; games that are played on a GPU have their policies there
            (`environments`).
        precision: Of products on a GPU: float32, tf32 or bf16 (parameters stay float32).
        compile: Whether torch compiles steps that no CPU kernel computes, where it can; else the results say why not.
        deterministic: Whether the same run again, on one kind of GPU, has the same bits; it is slower.
        environments: Where the games of training tasks are played: in memory (host), or where the learner computes (device), for
            environments that can live there. auto: there, where that is a GPU (`ludus.training.ondevice_collector.select_collector`
            decides).
        in_flight: async: requests that a worker has at most.
        min_completed: async: partial results that are learned from at least; by default as many as there are workers.
        gather_window: async: seconds to wait for more.
        max_lag: async: versions that data may be behind (null: any).
        bots: Where opponents that are bots play (see `BotSettings`).
    """

    kind: str = "inprocess"
    mode: Literal["sync", "async"] = "sync"
    workers: int = Field(1, ge=1)
    shards: int | None = Field(None, ge=1)
    address: str | None = None
    restarts: int = Field(3, ge=0)
    deadline: float | None = Field(600.0, gt=0, le=LONGEST)
    cpus: float = Field(1.0, ge=0)
    gpus: float = Field(0.0, ge=0)
    resources: Annotated[dict[str, Annotated[float, Field(ge=0)]], AfterValidator(_others)] = Field(
        default_factory=dict
    )
    stop_within: float | None = Field(20.0, gt=0, le=LONGEST)
    start_timeout: float | None = Field(None, gt=0, le=LONGEST)
    inference: Annotated[Inference, BeforeValidator(_inference)] = Inference()
    tasks: int | None = Field(None, ge=1)
    trainers: int = Field(0, ge=0)
    trainer_cpus: float = Field(1.0, ge=0)
    trainer_gpus: float | None = Field(None, ge=0)
    table_shards: int = Field(0, ge=0)
    replay: Literal["host", "device"] = "host"
    prefetch: int | None = Field(None, ge=0)
    threads: int = Field(1, ge=1)
    device: Annotated[str, AfterValidator(parse_device)] = "auto"
    acting: Literal["auto", "cpu", "device"] = "auto"
    precision: Precision = "float32"
    compile: bool = False
    deterministic: bool = False
    environments: Literal["auto", "host", "device"] = "auto"
    in_flight: int = Field(2, ge=1)
    min_completed: int | None = Field(None, ge=1)
    gather_window: float = Field(0.0, ge=0)
    max_lag: int | None = Field(8, ge=0)
    bots: BotSettings = BotSettings()

    @property
    def task_slots(self) -> int:
        """Training tasks in progress at a time."""
        return self.tasks or (1 if self.kind == "inprocess" else 4)

    @property
    def worker_resources(self) -> dict[str, float]:
        """All that a worker asks for; nothing in one process."""
        if self.kind == "inprocess":
            return {}
        return {**self.resources, "num_cpus": self.cpus, "num_gpus": self.gpus}

    @property
    def shared(self) -> SharedInference | None:
        """Servers that evaluate policies, if any."""
        from ludus.rollout.inference.server import (
            SharedInference,  # a scenario can be read without loading what it runs on
        )

        choice, on_cpu = self.inference, self.acting == "cpu"
        if choice.kind == "local":
            return None
        return SharedInference(
            servers=choice.servers,
            max_wait=choice.max_wait,
            max_batch=choice.max_batch,
            resources={"num_cpus": choice.cpus, "num_gpus": self._num_gpus(0.0 if on_cpu else choice.gpus)},
            restarts=self.restarts,
            device=CPU if on_cpu else self.device_choice,
        )

    @property
    def trainer_resources(self) -> dict[str, float]:
        """Of a rank."""
        return {"num_cpus": self.trainer_cpus, "num_gpus": self._num_gpus(self.trainer_gpus)}

    def _num_gpus(self, num_gpus: float | None) -> float:
        """Return the GPUs that a part which computes requests."""
        return float(self.device.startswith("cuda")) if num_gpus is None else num_gpus

    @property
    def device_choice(self) -> DeviceChoice:
        """Where learners are asked to compute."""
        return DeviceChoice(
            self.device,
            self.precision,
            written=self.environments != "device",
            compile=self.compile,
            deterministic=self.deterministic,
        )

    @property
    def feed(self) -> BatchPlacement:
        """How batches come to learners."""
        from ludus.training.trainer import BatchPlacement  # a scenario can be read without loading what it runs on

        return BatchPlacement(self.prefetch, on_device=self.replay == "device")

    @property
    def acting_choice(self) -> DeviceChoice:
        """Where the policies of workers are asked to compute: in one process as `acting` says; else on the GPUs that workers have (`gpus`),
        if any."""
        if self.acting == "cpu" or not (self.kind == "inprocess" or self.gpus):
            return CPU
        if_large = self.acting == "auto" and not self.gpus and self.device.startswith("cuda")
        return replace(self.device_choice, written=True, if_large=if_large)

    @property
    def plays_on(self) -> Literal["auto", "host", "device"]:
        """Where games of training tasks are asked to be played: in memory, too, where policies act on the CPU."""
        return "host" if self.acting == "cpu" and self.environments == "auto" else self.environments

    @property
    def async_limits(self) -> AsyncLimits | None:
        """Of workers that play apart; None: they play together."""
        if self.mode == "sync":
            return None
        return AsyncLimits(
            in_flight=self.in_flight,
            min_completed=self.min_completed,
            gather_window=self.gather_window,
            max_lag=self.max_lag,
        )

    def check(self) -> None:
        """Raise UnknownName for a kind that is none, ConfigError for options that it has no use for, and for a GPU that is not there."""
        from ludus.runtime.inprocess import RUNTIMES  # a scenario can be read without loading what it runs on

        unused = {
            "workers": self.workers if self.workers > 1 else None,
            "address": self.address,
            "trainers": self.trainers or None,
            "table_shards": self.table_shards or None,
            "start_timeout": self.start_timeout,
            "resources": self.resources or None,
            "inference": "server" if self.inference.kind == "server" else None,
        }
        if self.address is not None and (self.address == "local" or "://" in self.address):
            raise ConfigError(
                f"runtime.address={self.address!r} was given; expected host:port of a running Ray, or auto. Without an address a Ray is "
                "started on this machine; from outside of a cluster, submit the command as a job (docs/guides/cluster.md)."
            )
        if self.table_shards and self.trainers > 1:
            raise ConfigError(
                f"runtime.table_shards={self.table_shards} and runtime.trainers={self.trainers} were given: each of several trainers has "
                "tables of its own, beside it. Use one trainer, or no shards."
            )
        if self.table_shards and self.replay == "device":
            raise ConfigError(
                f"runtime.table_shards={self.table_shards} and runtime.replay=device were given: shards keep their items in their own "
                "processes' memory. Leave one of them out."
            )
        if self.kind == "inprocess" and any(unused.values()):
            option = next(f"{name}={value!r}" for name, value in unused.items() if value)
            other = "ray" if self.address or self.resources else "processes, or ray"
            raise ConfigError(
                f"runtime.{option} was given, and runtime.kind is inprocess, which is one process. Use --runtime {other}, or leave it out; "
                f"one process and several give the same numbers with equal shards: runtime.shards={self.shards or SHARDS} in both."
            )
        self._check_acting()
        if self.kind == "processes":
            self._check_processes()
        resolve_name("runtime", self.kind, RUNTIMES, expected=(Runtime,))
        if self.device.startswith("cuda"):
            self._check_gpus()

    def _check_acting(self) -> None:
        """Raise ConfigError for policies that are asked to act where they cannot."""
        apart = self.kind != "inprocess"
        if (
            self.acting == "device"
            and apart
            and not self.gpus
            and self.inference.kind == "local"
            and self.device != "cpu"
        ):
            raise ConfigError(
                "runtime.acting=device was given, and its workers have no GPU. Give each one (runtime.gpus, a fraction of one on Ray), or "
                "leave it out."
            )
        if self.acting != "cpu":
            return
        options = {
            "environments": self.environments == "device",
            "gpus": apart and self.gpus,
            "inference.gpus": self.inference.gpus,
        }
        for name in (name for name, amount in options.items() if amount):
            value = "device" if name == "environments" else f"{options[name]:g}"
            raise ConfigError(
                f"runtime.acting=cpu was given, and runtime.{name}={value}, by which policies act elsewhere. Leave one of them out."
            )

    def _check_processes(self) -> None:
        """What only Ray does. Raises ConfigError."""
        gpus = {
            "gpus": self.gpus,
            "inference.gpus": self.inference.gpus,
            "trainer_gpus": self.trainer_gpus,
        }
        shared = next((name for name, amount in gpus.items() if not float(amount or 0.0).is_integer()), "")
        flaws = {
            "address": self.address and "which are of this machine alone: only Ray joins a cluster",
            "resources": self.resources and "which are not placed by resources: only Ray counts them",
            shared: shared and "which get whole GPUs: only Ray shares one",
            "trainers": self.trainers > 1
            and self._num_gpus(self.trainer_gpus)
            and "whose trainers learn together on CPUs alone: only Ray's do on GPUs",
        }
        for name, flaw in flaws.items():
            if flaw:
                raise ConfigError(
                    f"runtime.{name}={gpus.get(name) or getattr(self, name)!r} was given, and runtime.kind is processes, {flaw}. Use "
                    "--runtime ray, or leave it out."
                )

    def _check_gpus(self) -> None:
        """Raise ConfigError."""
        elsewhere = "trainers" if self.trainers else "inference servers" if self.inference.kind == "server" else ""
        elsewhere = elsewhere or ("workers" if self.gpus and self.kind != "inprocess" else "")
        if elsewhere and ":" in self.device:
            raise ConfigError(
                f"runtime.device={self.device} was given, and {'Ray places' if self.kind == 'ray' else 'there are'} {elsewhere}: each sees "
                "the GPUs that it is given, from cuda:0. Give device=cuda; CUDA_VISIBLE_DEVICES, where Ray or the run is started, says "
                "which GPUs there are."
            )
        if self.trainers > 1 and not float(each := self._num_gpus(self.trainer_gpus)).is_integer():
            raise ConfigError(
                f"runtime.trainers={self.trainers} and runtime.trainer_gpus={each:g} were given: trainers that learn together need a GPU "
                "each. Give trainer_gpus=1, or one trainer (those of different tasks may share a GPU)."
            )
        if not self.trainers:
            require_gpu(self.device)

    def prepare(self, *, learns: bool) -> None:
        """Start loading what processes of this machine need, in another process, while this one loads the same.

        Args:
            learns: Whether policies are learned, so that parts compute with torch.
        """
        if self.kind == "processes":
            from ludus.runtime.fork_server import prepare

            prepare((*PLAYING, *(LEARNING if learns else ())))

    def build(self, *, learns: bool) -> Runtime:
        """Return the runtime.

        Args:
            learns: As for `prepare`.

        Raises:
            RunError: If it cannot start.
        """
        from ludus.runtime.inprocess import build_runtime

        self.prepare(learns=learns)

        options = {"address": self.address, "start_timeout": self.start_timeout}
        return build_runtime(self.kind, **{name: value for name, value in options.items() if value is not None})
