"""Packages that Ludus can do without: which extra of the distribution brings a module, and what is said where it is missing."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ludus.core.errors import ConfigError, one_line

DISTRIBUTION = "ludus-rl"
"""What `pip install` calls Ludus; PyPI's `ludus` is another project."""
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "atari": ("ale_py", "multi_agent_ale_py", "cv2"),
    "box2d": ("Box2D", "pygame"),
    "butterfly": ("pettingzoo", "Box2D", "pygame", "pymunk"),
    "classic": ("pettingzoo", "chess", "pygame", "rlcard", "shimmy"),
    "craftax": ("craftax",),
    "dmc": ("dm_control",),
    "envpool": ("envpool",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "highway": ("highway_env",),
    "hub": ("huggingface_hub",),
    "jax": ("gymnax", "jax", "jaxmarl", "pgx"),
    "lbf": ("lbforaging",),
    "magent2": ("magent2",),
    "mamujoco": ("gymnasium_robotics", "imageio", "mujoco"),
    "momaland": ("momaland",),
    "mpe2": ("mpe2",),
    "mujoco": ("imageio", "mujoco"),
    "openskill": ("openskill",),
    "openspiel": ("pyspiel", "open_spiel"),
    "parquet": ("pyarrow",),
    "pettingzoo": ("pettingzoo",),
    "ray": ("ray",),
    "rware": ("rware",),
    "sweep": ("optuna",),
    "tensorboard": ("tensorboard",),
    "textarena": ("textarena",),
    "ui": ("fastapi", "starlette", "uvicorn", "openskill"),
    "video": ("imageio", "cv2", "PIL"),
    "vmas": ("vmas",),
    "xland": ("xminigrid",),
}
"""The extras of the distribution, and the modules that each brings."""
_SHARED: Mapping[str, str] = {  # of modules that several extras bring, the one that is named
    "Box2D": "box2d",
    "cv2": "atari",
    "imageio": "mujoco",
    "mujoco": "mujoco",
    "openskill": "openskill",
    "pettingzoo": "pettingzoo",
}
_OTHERS: Mapping[
    str, str
] = {  # module -> what `pip install` calls what brings it, where that is neither an extra nor the module's name
    "gym_super_mario_bros": "--ignore-requires-python 'gym-super-mario-bros>=9'",  # it runs on 3.11, too
    "mlflow": "mlflow",
    "kaggle_environments": "--no-deps kaggle-environments==1.33.2",  # docs/environments/kaggle.md says with what
    "mlagents_envs": "--no-deps --ignore-requires-python mlagents-envs",  # docs/environments/mlagents.md says with what
    "pkg_resources": "'setuptools<81'",
    "pygame": "pygame-ce",
    "pyglet": "'pyglet<2'",
    "smac": "git+https://github.com/oxwhirl/smac",  # PyPI's smac is another
    "smacv2": "git+https://github.com/oxwhirl/smacv2",
    "wandb": "wandb",
}
_COMMANDS: Mapping[str, str] = {  # module -> the command that brings it, where `pip install` alone does not
    "gfootball": "make football",
    "gfootball_engine": "make football",
    "jumanji": f"pip install --no-deps jumanji==1.1.0 && pip install '{DISTRIBUTION}[jax]' huggingface-hub 'setuptools<81'",
}
_OF_PETTINGZOO: Mapping[str, str] = {"Box2D": "butterfly", "pygame": "classic"}


def extra_of(module: str) -> str:
    """Return the extra that brings a module; "" if none does, or the module is better installed by itself."""
    if module in _SHARED:
        return _SHARED[module]
    return "" if module in _OTHERS else next((extra for extra, modules in EXTRAS.items() if module in modules), "")


def is_known(module: str) -> bool:
    """Return whether something is known to bring a module that is no part of the core."""
    return bool(extra_of(module)) or module in _OTHERS or module in _COMMANDS


def is_installed(extra: str) -> bool:
    """Return whether all modules of an extra are there; they are looked for, not imported."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra])


def named(extra: str) -> str:
    """Return what `pip install` calls Ludus with an extra, quoted for the shell."""
    return f"'{DISTRIBUTION}[{extra}]'"


def check_extra(extra: str, what: str) -> None:
    """Raise ConfigError, with the command that installs it, unless all modules of an extra are there; imports none of them."""
    for module in EXTRAS[extra]:
        if importlib.util.find_spec(module) is None:
            raise missing_package(what, ModuleNotFoundError(name=module), extra=extra)


def install_command(module: str, *, extra: str = "") -> str:
    """Return the command that brings a module. extra: the one to name; default: `extra_of` the module."""
    if not extra and module in _COMMANDS:
        return _COMMANDS[module]
    extra = extra or extra_of(module)
    return f"pip install {named(extra) if extra else _OTHERS.get(module, module)}"


def missing_package(what: str, error: BaseException, *, extra: str = "") -> ConfigError:
    """Explain an ImportError. Packages raise ImportErrors of their own: the first that names a module, among an error and its causes,
    counts.

    Args:
        what: was asked for, such as the id of an environment; begins the sentence.
        error: was raised when it was imported.
        extra: the one to name, if it brings the module; default: `extra_of` the module.

    Returns:
        An error that says what is missing, and the command that installs it.
    """
    cause: BaseException | None = error
    module = ""
    while cause is not None and not module:
        witness = cause
        module = (getattr(cause, "name", None) or "").partition(".")[0]
        cause = cause.__cause__ or cause.__context__
    if not module:
        return ConfigError(f"{what} needs something that cannot be imported: {one_line(error)}.")
    if importlib.util.find_spec(module) is not None:
        return ConfigError(f"{what} needs {module}, which is installed and cannot be imported: {one_line(witness)}.")
    if not extra and what.startswith("pettingzoo/"):
        extra = _OF_PETTINGZOO.get(module, "")
    command = install_command(module, extra=extra if module in EXTRAS.get(extra, ()) else "")
    return ConfigError(f"{what} needs {module}, which cannot be imported; `{command}` brings it.")


@contextmanager
def optional(what: str, *, extra: str = "") -> Iterator[None]:
    """Around imports of packages that may be missing: an ImportError becomes `missing_package` of `what`.

    Raises:
        ConfigError: with the command that installs what is missing.
    """
    try:
        yield
    except ImportError as error:
        raise missing_package(what, error, extra=extra) from error


def require(module: str, what: str, *, extra: str = "") -> Any:
    """Import a module that may be missing, and return it.

    Raises:
        ConfigError: with the command that installs what is missing.
    """
    with optional(what, extra=extra):
        return importlib.import_module(module)
