"""Agents that are files of other libraries, in this process or, where their packages clash with ours, in a Python of their own."""

from __future__ import annotations

import hashlib
import importlib
import json
import shlex
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from ludus.contrib.agents import protocol
from ludus.contrib.agents.answers import Episodes, Judge, Rule, require_positive
from ludus.contrib.agents.command_agent import CommandAgent
from ludus.core.errors import ConfigError, PolicyError, one_line
from ludus.policies.agents import AgentContext, AgentGame, AgentRequests

_MODELS = Path(__file__).parent / "agent_models"
_LOOK = 0.5  # seconds between two heartbeats
_HERE = ("what", "python", "timeout", "start", "illegal", "faults")


@dataclass(kw_only=True)
class ModelAgent:
    """What a model of `ludus.contrib.agents.agent_models` answers, by one forward pass for all decisions of a step.

    Attributes:
        what: The file.
        python: A Python whose packages load it; default: the one that runs Ludus.
        timeout: Seconds for a move, in a Python of its own.
        start: Seconds to load it.
        illegal: What is done where an answer is illegal: random, a legal action is played, and counted; error.
        faults: How many such answers one process of the agent may give before it is an error all the same; None: any number.
    """

    what: str
    python: str = ""
    timeout: float = 10.0
    start: float = 120.0
    illegal: Rule = "random"
    faults: int | None = None
    scheme: ClassVar[str] = ""
    model: ClassVar[str] = ""
    files: ClassVar[tuple[str, ...]] = ("what",)
    wants_states: ClassVar[bool] = False
    _model: Any = field(default=None, init=False, repr=False)
    _elsewhere: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout, start=self.start)
        if not self.what:
            raise ConfigError(f"{self.scheme}: a file was expected after it, as in {self.scheme}:FILE.")

    def options(self) -> dict[str, Any]:
        """Return what the model is made with, besides the file."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name not in _HERE}

    def begin(self, game: AgentGame, context: AgentContext) -> None:
        """See `ExternalAgent`. Loads the model, and compares its spaces with the game's."""
        if self.python:
            program = shutil.which(self.python)
            if program is None:
                raise PolicyError(f"agent {context.name!r}: there is no Python {self.python!r} that can be executed.")
            words = [program, str(_MODELS / "serve.py"), self.model, self.what, json.dumps(self.options())]
            self._elsewhere = CommandAgent(
                what=shlex.join(words), timeout=self.timeout, start=self.start, illegal=self.illegal, faults=self.faults
            )
            self._elsewhere.begin(game, context)
            return
        self._judge = Judge(game, context, rule=self.illegal, most=self.faults)
        self._episodes = Episodes()
        if self._model is None:
            module, _, name = self.model.partition(":")
            from ludus.contrib.agents.agent_models.common import Refused

            try:
                with _beating(context, self.start):
                    cls = getattr(importlib.import_module(f"{__package__}.agent_models.{module}"), name)
                    self._model = cls(protocol.hello(game)["game"], self.what, **self.options())
            except Refused as error:
                raise PolicyError(f"agent {context.name!r}: {one_line(error)}.") from error

    def act(self, requests: AgentRequests) -> list[Any]:
        """See `ExternalAgent`."""
        if self._elsewhere is not None:
            played: list[Any] = self._elsewhere.act(requests)
            return played
        episodes = self._episodes.of(requests)
        answers = self._model.act(
            requests.player, list(requests.slot), requests.seed.tolist(), requests.observation, requests.mask
        )
        return self._judge.actions(requests, episodes, answers)

    def identity(self) -> Mapping[str, Any]:
        """See `ExternalAgent`: the digests of its files."""
        return file_digests(**{name: getattr(self, name) for name in self.files})

    def close(self) -> None:
        """See `ExternalAgent`."""
        if self._elsewhere is not None:
            self._elsewhere.close()


@contextmanager
def _beating(context: AgentContext, seconds: float) -> Iterator[None]:
    """Meanwhile the agent is not taken for hung, for that long: libraries may take a minute to be imported."""
    over, until = threading.Event(), time.monotonic() + seconds

    def beat() -> None:
        while not over.wait(_LOOK) and time.monotonic() < until:
            context.heartbeat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def file_digests(**paths: str) -> Mapping[str, Any]:
    """Return the SHA-256 of those that are files; of folders, of all files in them."""
    digests = {}
    for name, path in paths.items():
        files = (
            [Path(path)]
            if Path(path).is_file()
            else sorted(one for one in Path(path).rglob("*") if one.is_file())
            if path
            else []
        )
        if files:
            digest = hashlib.sha256()
            for one in files:
                digest.update(one.read_bytes())
            digests[name] = digest.hexdigest()
    return {"files": digests}


@dataclass(kw_only=True)
class SB3Agent(ModelAgent):
    """`sb3:FILE.zip`, a policy that Stable-Baselines3 or sb3-contrib saved. It is unpickled: a file of somebody else may run code.

    Attributes:
        deterministic: Play the likeliest action, or the mean, instead of drawing one. What explores by noise around one action (DQN,
            QRDQN, TD3, DDPG) always plays that.
        masks: Legal actions only: MaskablePPO is given them, the others' probabilities and values are restricted to them. Without:
            illegal answers are counted, as `illegal` says.
        algorithm: The class that saved it, where the file does not tell.
        normalize: File of `VecNormalize.save`, whose statistics observations are normalized with.
    """

    deterministic: bool = False
    masks: bool = True
    algorithm: str = ""
    normalize: str = ""
    scheme: ClassVar[str] = "sb3"
    model: ClassVar[str] = "sb3_model:SB3Model"
    files: ClassVar[tuple[str, ...]] = ("what", "normalize")


@dataclass(kw_only=True)
class ONNXAgent(ModelAgent):
    """`onnx:FILE.onnx`, by ONNX Runtime: a file that `ludus export` wrote, or another one with an observation as input.

    Attributes:
        deterministic: Play the likeliest action instead of drawing one.
        masks: Legal actions only; an input that is called mask or action_mask gets them.
        output: What the first output is: action, logits, probabilities or values. Default: integers and boxes are actions; names with
            "prob" probabilities, with "value" or a first q values; others logits.
    """

    deterministic: bool = False
    masks: bool = True
    output: str = ""
    scheme: ClassVar[str] = "onnx"
    model: ClassVar[str] = "onnx_model:ONNXModel"


@dataclass(kw_only=True)
class TorchAgent(ModelAgent):
    """`torch:FILE.pt` (TorchScript), `torch:FILE.pt2` (torch.export, also of `ludus export`), or `torch:module:Class@WEIGHTS`: a module
    that takes observations [n, …], and the legal actions where its second argument is called `mask`.

    Attributes:
        deterministic: Play the likeliest action instead of drawing one.
        masks: Legal actions only.
        output: What the module, or the first of its outputs, returns, as of `ONNXAgent`.
        args: Keywords of the class, as JSON.
    """

    deterministic: bool = False
    masks: bool = True
    output: str = ""
    args: str = ""
    scheme: ClassVar[str] = "torch"
    model: ClassVar[str] = "torch_model:TorchModel"

    def identity(self) -> Mapping[str, Any]:
        """See `ExternalAgent`: the digest of its file, or of its weights."""
        return file_digests(what=self.what.rpartition("@")[2])


@dataclass(kw_only=True)
class CleanRLAgent(ModelAgent):
    """`cleanrl:WEIGHTS,agent=module:Class`, a state dict and the class of the script that trained it.

    Attributes:
        agent: Its class, such as cleanrl.ppo:Agent; it is made of an object with the spaces of one environment.
        deterministic: Play the likeliest action, or the mean, instead of drawing one.
        masks: Legal actions only: what the agent draws, or its action values, are restricted to them.
    """

    agent: str = ""
    deterministic: bool = False
    masks: bool = True
    scheme: ClassVar[str] = "cleanrl"
    model: ClassVar[str] = "torch_model:CleanRLModel"


@dataclass(kw_only=True)
class RLlibAgent(ModelAgent):
    """`rllib:FOLDER`, a checkpoint of RLlib's API of RLModule and Learner. It is unpickled: a file of somebody else may run code.

    Attributes:
        policy: Name of the module, where the checkpoint has several.
        deterministic: Play the likeliest action, or the mean, instead of drawing one.
        masks: Legal actions only; a module that observes action_mask gets them.
        normalize_actions: Whether boxes were played as -1 to 1, as RLlib does if nothing else is said.
    """

    policy: str = ""
    deterministic: bool = False
    masks: bool = True
    normalize_actions: bool = True
    scheme: ClassVar[str] = "rllib"
    model: ClassVar[str] = "rllib_model:RLlibModel"
