"""What `import ludus` offers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import run_tools as tools

import ludus
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.cli.main import main
from ludus.policies.base import Policy
from ludus.runs.scenario import SCENARIOS
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader
from ludus.testing.fakes import TEAM, ScriptedEnv
from ludus.training.callbacks import Callback, UpdateRecord
from ludus.training.stopping import STOPPERS


def test_names_are_sorted_and_resolve() -> None:
    assert ludus.__all__ == sorted(ludus.__all__)
    assert dir(ludus) == ludus.__all__
    for name in ludus.__all__:
        assert getattr(ludus, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Lambda'"):
        _ = ludus.Lambda


def test_import_is_light() -> None:
    code = "import sys, ludus, ludus.storage.store; assert not {'torch', 'pyspiel', 'numba'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_run_from_python(tmp_path: Path) -> None:
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker", algorithm=ludus.ExactBestResponse(), meta_solver="nash", generations=5
    )
    result = ludus.run(scenario, run_dir=tmp_path)
    assert isinstance(result, ludus.Result)
    assert result.run_dir == tmp_path
    assert result.stopped_by == "the schedule is complete"
    names = [[r.ref.policy for r in members] for members in result.populations]
    for p in (0, 1):  # a response that adds nothing is not added
        assert names[p][:2] == [f"{p}-0", f"{p}-1"]
        assert names[p] == [name for name in (f"{p}-{g}" for g in range(6)) if name in names[p]]
    sizes = tuple(map(len, names))
    assert result.payoffs.mean.shape == (2, *sizes)
    assert result.payoffs.exact.all()
    np.testing.assert_allclose(result.payoffs.mean[0], -result.payoffs.mean[1])
    assert [m.shape for m in result.meta_strategies] == [(size,) for size in sizes]
    np.testing.assert_allclose([m.sum() for m in result.meta_strategies], 1.0)
    assert len(result.nash_conv) == 6
    assert result.nash_conv[-1] < result.nash_conv[0]
    assert result.report == tmp_path / "report.html"
    assert result.report.exists()
    policy = result.policy(0)
    assert isinstance(policy, Policy)
    assert policy.spec == result.populations[0][-1].spec

    # the same again from what is on disk
    again = ludus.resume(tmp_path)
    assert again.nash_conv == result.nash_conv
    np.testing.assert_array_equal(again.payoffs.mean, result.payoffs.mean)
    report = ludus.evaluate_run(tmp_path, episodes=50)
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(result.nash_conv[-1], abs=1e-12)


def test_a_name_is_the_folder_wherever_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = {"env": "openspiel/kuhn_poker", "algorithm": "exact", "generations": 0}
    assert ludus.run(ludus.PSRO(**small, name="a"), report=False).run_dir == Path("runs/a")
    assert ludus.run(ludus.PSRO(**small), name="b", report=False).run_dir == Path("runs/b")
    assert ludus.run("kuhn", ["name=c", "generations=0"], report=False).run_dir == Path("runs/c")
    Path("mine.yaml").write_text(
        "{scenario: psro, env: openspiel/kuhn_poker, algorithm: exact, generations: 0, name: d}"
    )
    assert main(["train", "mine.yaml"]) == 0
    assert main(["train", "mine.yaml", "--name", "e"]) == 0
    with pytest.raises(ludus.LudusError, match="'runs/d' already holds a run"):
        ludus.run("mine.yaml", report=False)
    assert main(["train", "kuhn", "generations=0"]) == 0  # a preset's own name
    *named, timed = sorted(path.name for path in Path("runs").iterdir())
    assert named == ["a", "b", "c", "d", "e"]
    assert re.fullmatch(r"kuhn-\d{8}-\d{6}", timed)
    with pytest.raises(ludus.LudusError, match=r"name 'x/y' cannot name a folder of ./runs"):
        ludus.run("kuhn", name="x/y")


def test_errors_are_one_family(tmp_path: Path) -> None:
    with pytest.raises(ludus.LudusError):
        ludus.PSRO(env="openspiel/kuhn_poker", generation=5)
    with pytest.raises(ludus.LudusError):
        ludus.run(ludus.PSRO(env="openspiel/khun_poker"), run_dir=tmp_path / "none")
    with pytest.raises(ludus.LudusError):
        ludus.resume(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_every_scenario_algorithm_and_stopper_is_there() -> None:
    homes = [target.split(":") for table in (SCENARIOS, ALGORITHMS, STOPPERS) for target in table.values()]
    public = ludus._HOMES | {name: ALGORITHMS[kind].partition(":")[0] for name, kind in ludus._CONTRIB.items()}
    assert {(module, name) for module, name in homes if public.get(name) != module} == set()
    assert set(public) == set(ludus.__all__) - {"__version__"}
    block = Path(ludus.__file__).read_text().partition("\nif TYPE_CHECKING:\n")[2]
    shown = re.findall(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))$", block, re.MULTILINE)
    seen = {name: module for module, *names in shown for name in re.findall(r"\w+", "".join(names))}
    assert seen == public, "what an editor completes"


def test_a_class_in_place_of_an_object_means_its_defaults() -> None:
    scenario = ludus.PSRO(env="openspiel/kuhn_poker", algorithm=ludus.PPO, callbacks=ludus.Callback)
    assert (scenario.algorithm, scenario.callbacks) == (ludus.PPO(), (ludus.Callback(),))
    assert ludus.Episodes(500) == ludus.Episodes(value=500)


KUHN: dict[str, Any] = {"env": "openspiel/kuhn_poker", "algorithm": "exact"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ludus.run(42), r"42 was given. Expected a scenario such as ludus.PSRO\(env=…\), a preset"),
        (lambda: ludus.run(ludus.PSRO), r"PSRO is a class: give its options, PSRO\(env=…\)"),
        (lambda: ludus.run("khun"), "unknown preset 'khun'; did you mean 'kuhn'"),
        (lambda: ludus.run("kuhn", generation=3), "unknown key 'generation'; did you mean 'generations'"),
        (lambda: ludus.run("kuhn", ["generations"]), "'generations' is not an override; expected key=value"),
        (lambda: ludus.run(ludus.PSRO(**KUHN), ["generations=3"]), "they are for presets, files and ids. Give keywords"),
        (lambda: ludus.run(ludus.PSRO(**{**KUHN, "algorithm": int})), r"'builtins:int' is not an algorithm: it lacks check.., policy"),
        (lambda: ludus.PSRO(env=3), "env: 3 was given; expected an id such as openspiel/leduc_poker, a ludus.Environment"),
        (lambda: ludus.PSRO(env=None), "env: nothing was given; expected an id"),
        (lambda: ludus.PSRO(**KUHN, response=ludus.Episodes), r"the class Episodes was given, .*Give an object, Episodes\(…\)"),
        (lambda: ludus.PSRO(**KUHN, stop=3), r"given 3. In Python also an object, ludus.Generations\(20\)"),
        (lambda: ludus.PSRO(**KUHN, callbacks=3), "callbacks: a callback was expected, by name or as a mapping"),
        (lambda: ludus.PSRO(**KUHN, runtime=3), "runtime: Input should be a valid dictionary or instance of RuntimeChoice"),
        (lambda: ludus.Episodes(3, 4), r"Episodes takes value, and others by name; given \(3, 4\)"),
        (lambda: ludus.run("kuhn", "generations=3"), "overrides 'generations=3' were given; expected a list"),
        (lambda: ludus.run("kuhn", run_dir=3), "run_dir=3 was given; expected the path of a folder"),
        (lambda: ludus.run("kuhn", observer=3), "observer=3 was given, which is no observer: it lacks .*message"),
        (lambda: ludus.resume(3), "3 was given, a run's name or directory was expected"),
        (lambda: ludus.load_policy("@best"), "'@best' is no policy: it says of no run. Write RUN@best."),
        (lambda: ludus.load_policy("nobody"), "'nobody' is no policy: there is no run 'nobody'"),
    ],
)  # fmt: skip
def test_wrong_types(make: Callable[[], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ludus.LudusError, match=words):
        make()
    assert list(tmp_path.iterdir()) == []


def test_an_environment_alone_is_a_scenario_and_runs_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {
        "algorithm": {"kind": "ppo", "batch": 40, "epochs": 1},
        "response": {"episodes": 4},
        "evaluation": {"episodes": 2},
    }
    with pytest.warns(UserWarning, match="resume"):
        result = ludus.run(lambda: gymnasium.make("CartPole-v1"), name="mine", report=False, **small)
    assert (type(result.scenario).kind, result.scenario.env.id) == ("fixed_opponents", "object/lambda")
    ludus.run("kuhn", name="k", generations=1, report=False)
    assert ludus.resume("k", report=False).run_dir == Path("runs/k")
    assert ludus.write_report("k") == Path("runs/k/report.html")


def test_a_preset_by_name_with_changes(tmp_path: Path) -> None:
    result = ludus.run("kuhn", ["generations=9"], run_dir=tmp_path, stop=ludus.Generations(2), seed=4, report=False)
    assert result.stopped_by == "2 of 2 generations are done"
    assert (result.scenario.generations, result.scenario.seed, result.scenario.algorithm) == (
        9,
        4,
        ludus.ExactBestResponse(),
    )


# ---------------------------------------------------------------------------------------------- environments as objects


class Coin(gymnasium.Env[Any, Any]):
    """Shows a coin, and pays 1 for naming it, five times."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    closed = False

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 5
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        paid = float(action == self.coin)
        return self._look(), paid, self.left == 0, False, {}

    def _look(self) -> Any:
        self.coin = int(self.np_random.integers(2))
        return np.array([self.coin], np.float32)

    def close(self) -> None:
        self.closed = True


def coin_beside(lock: object) -> Coin:
    return Coin()


def learner(env: Any, **changes: Any) -> ludus.FixedOpponents:
    algorithm = ludus.PPO(batch=20, epochs=2, hidden=(8,))
    return ludus.FixedOpponents(
        env=env, response={"episodes": 40}, **{"algorithm": algorithm, "generations": 2, **changes}
    )


WARNED = pytest.mark.filterwarnings("ignore:the environment object/")


def test_importable_objects_are_stored_by_name() -> None:
    assert ludus.Environment(source=Coin).id == f"{__name__}:Coin"
    assert learner(Coin).to_yaml() == learner(f"{__name__}:Coin").to_yaml()


@WARNED
def test_a_lambda_is_told_of_and_given_again(tmp_path: Path) -> None:
    """And the run goes on as if it had never been stopped."""
    make: Callable[[], Coin] = lambda: Coin()  # noqa: E731
    whole, run_dir, impatient = tmp_path / "whole", tmp_path / "run", tools.Impatient(3)
    with pytest.warns(
        UserWarning, match=r"object/lambda was given as a Python object.*ludus\.resume\('.*run', env=…\)"
    ):
        ludus.run(learner(make), run_dir=run_dir, observer=impatient, stop=impatient.stop, report=False)
    with Reader(run_dir) as reader:
        assert [event.level for event in reader.events() if event.kind == "environment"] == ["warning"]
        assert not reader.summary().complete  # type: ignore[union-attr]
    with pytest.raises(
        ludus.LudusError, match=r"Continue with ludus\.resume\(run, env=…\), given the same object or function"
    ):
        ludus.resume(run_dir, report=False)
    with pytest.raises(
        ludus.LudusError, match="one object was given, which is one environment, and the run has num_envs=8"
    ):
        ludus.resume(run_dir, env=Coin(), report=False)
    ludus.resume(run_dir, env=make, report=False)
    ludus.run(learner(make), run_dir=whole, report=False)
    assert tools.policies_of(run_dir) == tools.policies_of(whole)
    assert tools.state_of(run_dir) == tools.state_of(whole)
    with pytest.raises(ludus.LudusError, match="env was given, and the run's environment is 'openspiel/kuhn_poker'"):
        ludus.resume(ludus.run("kuhn", run_dir=tmp_path / "kuhn", generations=1, report=False).run_dir, env=make)


@WARNED
def test_one_object_is_one_environment_and_stays_open(tmp_path: Path) -> None:
    coin = Coin()
    result = ludus.run(learner(coin, generations=1), run_dir=tmp_path, report=False)
    assert result.scenario.env.num_envs == 1
    assert not coin.closed
    with pytest.raises(
        ludus.LudusError, match="num_envs=3 was given with one object of Coin, which is one environment"
    ):
        ludus.Environment(source=coin, num_envs=3)
    first = result.scenario.env.make()
    first.reset(np.zeros(1, np.uint64))
    result.scenario.env.make()
    with pytest.raises(ludus.LudusError, match="is one object, and a second use of it has begun"):
        first.reset(np.zeros(1, np.uint64))


@pytest.mark.parametrize(
    ("env", "changes", "words"),
    [
        (Coin(), {"runtime": "ray"}, "cannot be sent to its workers: it is one object, and each of them needs its own"),
        (partial(coin_beside, threading.Lock()), {"runtime": "ray"}, "cannot be sent to its workers: cannot pickle"),
        ({"source": lambda: Coin(), "workers": 2}, {}, "cannot be sent to subprocesses: .* name it module:function"),
        (Coin(), {"learners": (0,), "runtime": {"tasks": 2}}, "several learners of this fixed_opponents run play at the same time"),
        (lambda: 3, {}, "has none of the interfaces that Ludus plays"),
        (lambda: 1 / 0, {}, "cannot be made: it raised ZeroDivisionError"),
    ],
)  # fmt: skip
def test_objects_that_cannot_be_used(env: Any, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ludus.LudusError, match=words):
        ludus.run(learner(env, **changes), run_dir=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_environments_that_cannot_be_learned_in_are_closed(tmp_path: Path) -> None:
    closed: list[bool] = []

    class Vector(ScriptedEnv):
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(ludus.LudusError, match="SAC needs continuous actions"):
        ludus.run(learner(lambda num_envs: Vector([TEAM], num_envs), algorithm="sac"), run_dir=tmp_path / "run")
    assert closed


class Raises(Callback):
    def on_update(self, update: UpdateRecord) -> None:
        raise ZeroDivisionError("on purpose")


@WARNED
def test_environments_of_a_run_that_is_refused_or_fails_are_closed(tmp_path: Path) -> None:
    """Also single ones that have not been reset, and all shards; and those that nobody can play, but not the user's object."""
    made: list[Coin] = []

    class Counted(Coin):
        def __init__(self) -> None:
            made.append(self)

    class Stranger(Counted):
        observation_space: Any = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("x")
    with pytest.raises(ludus.LudusError, match="taken"):
        ludus.run(learner(Counted), run_dir=tmp_path / "taken")
    assert made
    assert all(env.closed for env in made)
    made.clear()
    several = learner({"source": Counted, "num_envs": 4}, runtime={"shards": 2}, callbacks=[Raises()])
    with pytest.raises(ludus.LudusError, match="on_update"):
        ludus.run(several, run_dir=tmp_path / "fails")
    assert len(made) >= 4
    assert all(env.closed for env in made)
    for env in (Stranger, Stranger()):
        made.clear()
        with pytest.raises(ludus.LudusError, match="Sequence"):
            ludus.Environment(source=env, num_envs=1).make()
        assert [one.closed for one in made] == ([True] if env is Stranger else [])
    assert not env.closed


@WARNED
def test_a_run_ends_though_its_environments_cannot_be_closed(tmp_path: Path) -> None:
    class Sticks(Coin):
        def close(self) -> None:
            raise RuntimeError("the display is gone")

    class Hears(NullObserver):
        said: ClassVar[list[str]] = []

        def message(self, text: str) -> None:
            self.said.append(text)

    result = ludus.run(learner(Sticks, generations=1), run_dir=tmp_path, report=False, observer=Hears())
    assert result.summary.complete
    assert [text for text in Hears.said if "could not be closed: RuntimeError: the display is gone" in text]


def test_a_result_is_printed_in_one_line(tmp_path: Path) -> None:
    scenario = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=1)
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    assert repr(result) == (
        f"<Result of '{tmp_path / 'run'}': 1 generations, NashConv {result.nash_conv[-1]:.4g}; the schedule is complete>"
    )


@pytest.mark.slow
@WARNED
@pytest.mark.parametrize("apart", ["processes", pytest.param("ray", marks=pytest.mark.long)], indirect=True)
def test_lambda_that_makes_an_environment_goes_to_the_workers(apart: str, tmp_path: Path) -> None:
    make: Callable[[], Coin] = lambda: Coin()  # noqa: E731
    for name, runtime in (("here", {}), ("apart", {"kind": apart, "workers": 2, "tasks": 1})):
        ludus.run(learner(make, runtime={"shards": 2, **runtime}), run_dir=tmp_path / name, report=False)
    assert tools.policies_of(tmp_path / "here") == tools.policies_of(tmp_path / "apart")


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in (ludus, ludus.core.types) for name in vars(module)["_RENAMED"]]
)
def test_former_name_warns_and_is_the_new_one(module, name):
    with pytest.warns(DeprecationWarning, match=f"{name} is called .*{module._RENAMED[name]} now"):
        former = getattr(module, name)
    assert former is getattr(module, module._RENAMED[name])


def test_former_properties_of_records_warn():
    spec = ludus.make_env("openspiel/kuhn_poker", num_envs=1).spec
    with pytest.warns(DeprecationWarning, match="constant_sum"):
        assert spec.constant == spec.constant_sum == 0.0
    with pytest.warns(DeprecationWarning, match="agent_index"):
        assert spec.places.tolist() == [0, 0]
    own, other = ludus.PolicyRef(0, "0-0"), ludus.PolicyRef(0, "0-1")
    mixture = ludus.Mixture((ludus.core.types.OpponentFactor((1,), ((own,),), (1.0,)),))
    with pytest.warns(DeprecationWarning, match="with_seat_fixed"):
        assert mixture.instead(1, other) == mixture.with_seat_fixed(1, other)
