"""Games that are stepped as tensors: equal, row by row, to the compiled vector's, and returns that are those expected. By hand, on a CPU;
and on `meta`, where whatever is read back raises."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from test_tree_tensors import GAMES as PLAYED
from test_tree_tensors import GOOFSPIEL, compiled_plans, everyones
from tree_toy import PayingGame

from ludus.backend.device import missing_compiler
from ludus.core.errors import EnvError, PolicyError
from ludus.envs.device_vector import DeviceTimestep, OffersDevice
from ludus.envs.tree import stepping
from ludus.envs.tree.game_tree import compile_tree
from ludus.envs.tree.stepping import TreeDeviceEnv, TreeGames
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.testing.device_env import CopiedEnv

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # torch's compiler uses what torch will not have long
GAMES = [*PLAYED, "matching_pennies_3p", GOOFSPIEL.replace("descending", "random"), "sheriff"]


class Seeded(CopiedEnv):
    """The compiled vector, seen through the contract, with the seeds that the device's has."""

    def __init__(self, env: TreeVectorEnv, seeds: torch.Tensor) -> None:
        super().__init__(env)
        self.seeds = seeds.numpy().view(np.uint64)

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        return self._timestep(self.env.reset(self.seeds, episodes=episodes))


def at_random(env: TreeDeviceEnv, timestep: DeviceTimestep, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Legal actions where due, any numbers elsewhere."""
    mask = env.spec.enumeration.mask
    actions = []
    for slots in timestep.slots:
        legal = mask[slots.observation.numpy()]
        chosen = (rng.random(legal.shape) * legal).argmax(axis=2)
        actions.append(torch.from_numpy(np.where(slots.due.numpy(), chosen, rng.integers(-9, 9, chosen.shape))))
    return tuple(actions)


@pytest.mark.parametrize(("name", "episodes"), [*((name, None) for name in [*GAMES, PayingGame]), ("kuhn_poker", 2)])
def test_every_step_is_that_of_the_compiled_vector(name: object, episodes: int | None) -> None:
    """Under the same seeds, chance included; a decision counts as open from where it is due to where it ends."""
    tree = compile_tree(name if isinstance(name, str) else PayingGame())
    host = TreeVectorEnv(tree, 9)
    assert isinstance(host, OffersDevice)
    env = host.on_device(CPU, num_envs=9)
    assert isinstance(env, TreeDeviceEnv)
    other = Seeded(host, env.seeds(5))
    found, wanted = env.reset(5, episodes=episodes), other.reset(5, episodes=episodes)
    rng, finished = np.random.default_rng(0), 0
    opened = [torch.zeros(9, 1, dtype=torch.bool) for _ in found.slots]
    for _ in range(60):
        assert found.over.equal(wanted.over)
        for name_ in ("returns", "length", "terminated"):
            assert getattr(found, name_)[found.over].equal(getattr(wanted, name_)[found.over]), name_
        for p, (ours, theirs) in enumerate(zip(found.slots, wanted.slots, strict=True)):
            assert ours.due.equal(theirs.due)
            assert ours.observation[ours.due].equal(theirs.observation[ours.due])
            ended = ours.ended & opened[p]
            assert ended.equal(theirs.ended)
            assert ours.terminated[ended].all()
            closed = ended | (ours.due & opened[p])
            assert ours.reward[closed].equal(theirs.reward[closed])
            opened[p] = (opened[p] & ~ended) | ours.due
            ids = env.spec.enumeration.ids(p)
            assert ((ours.observation >= ids.start) & (ours.observation < ids.stop)).all()
        finished += int(found.over.sum())
        actions = at_random(env, found, rng)
        found, wanted = env.step(actions), other.step(actions)
    assert finished > 9 if episodes is None else finished == 18
    assert (episodes is None) == any(bool(slots.due.any()) for slots in found.slots)


def test_chance_is_drawn_as_it_should_be() -> None:
    """Kuhn: six deals, as often as each other (chi-square, 1 in 1,000), whatever was dealt in the episode before."""
    env = TreeDeviceEnv(compile_tree("kuhn_poker"), 12_000, "cpu")
    first, passes = env.reset(3), torch.zeros(12_000, 1, dtype=torch.int64)
    keys = np.array([int(key[0]) for key in env.spec.enumeration.key])
    decks = []
    for _ in range(2):
        second = env.step((passes, passes))
        cards = [keys[step.slots[p].observation[:, 0].numpy()] for p, step in enumerate((first, second))]
        decks.append(cards[0] * 3 + cards[1])
        first = env.step((passes, passes))
        assert first.over.all()
    for joint, cells in ((decks[0], 6), (decks[1], 6), (decks[0] * 9 + decks[1], 36)):
        counts = np.unique(joint, return_counts=True)[1]
        assert len(counts) == cells
        assert ((counts - 12_000 / cells) ** 2).sum() * cells / 12_000 < chi2.ppf(0.999, cells - 1)


# ---------------------------------------------------------------------------------------------- whole games


@pytest.mark.parametrize("name", PLAYED)
def test_games_that_are_played_pay_what_is_expected(name: str) -> None:
    """Every profile of two tables per seat, each played by as many games; within four standard errors."""
    tree = compile_tree(name)
    games, tables = TreeGames(tree, "cpu"), everyones(tree, 2, seed=5)
    profiles = list(itertools.product(range(2), repeat=tree.num_players))
    each = 4000
    choice = torch.tensor(profiles).repeat_interleave(each, dim=0).t()
    played = games.play([torch.from_numpy(many) for many in tables], len(profiles) * each, choice=list(choice), seed=3)
    stacks = compiled_plans(tree, tables)
    returns = played.returns.numpy().reshape(len(profiles), each, tree.num_players)
    wanted = np.stack([tree.values([s[k] for s, k in zip(stacks, profile, strict=True)]) for profile in profiles])
    error = returns.std(axis=1) / np.sqrt(each)
    assert (np.abs(returns.mean(axis=1) - wanted) <= 4 * error + 1e-9).all()
    assert np.isin(played.returns.numpy(), tree.arrays.returns).all()


def test_zero_probability_actions_are_not_sampled() -> None:
    """Kuhn: whoever always passes ends every game after two decisions, with the ante of 1 to the higher card; and if player 1 bets, the
    first must have passed, then bet too: three decisions, for 2."""
    tree = compile_tree("kuhn_poker")
    games = TreeGames(tree, "cpu")
    passing = torch.tensor([[[1.0, 0.0]] * 6], dtype=torch.float64)
    played = games.play([passing, passing], 500, seed=0)
    assert set(played.decisions.tolist()) == {2}
    assert set(map(tuple, played.returns.tolist())) == {(1.0, -1.0), (-1.0, 1.0)}
    first = [[[1.0, 0.0] if len(key) == 1 else [0.0, 1.0] for key in tree.enumeration.key[:6]]]
    played = games.play([torch.tensor(first, dtype=torch.float64), 1 - passing], 500, seed=1)
    assert set(played.decisions.tolist()) == {3}
    assert set(played.returns.flatten().tolist()) == {2.0, -2.0}


def test_a_seed_decides_the_games() -> None:
    games = TreeGames(compile_tree("leduc_poker"), "cpu")
    uniform = [torch.from_numpy(games.tree.uniform(p)[None]) for p in range(2)]
    one, other, third = (games.play(uniform, 300, seed=seed).returns for seed in (1, 1, 2))
    assert one.equal(other)
    assert not one.equal(third)


# ---------------------------------------------------------------------------------------------- one kernel


@pytest.mark.long
def test_fused_steps_equal_single_operations() -> None:
    if missing := missing_compiler("cpu"):
        pytest.skip(missing)
    tree = compile_tree("kuhn_poker")
    whole, single = (TreeGames(tree, "cpu", fused=fused) for fused in (True, False))
    tables, choice = [torch.from_numpy(many) for many in everyones(tree, 2)], [torch.arange(3000) % 2] * 2
    found, wanted = (games.play(tables, 3000, choice=choice, seed=4) for games in (whole, single))
    assert found.returns.equal(wanted.returns)
    envs = [TreeDeviceEnv(tree, 100, "cpu", fused=fused) for fused in (True, False)]
    steps = [env.reset(2) for env in envs]
    rng = np.random.default_rng(0)
    for _ in range(12):
        actions = at_random(envs[0], steps[0], rng)
        steps = [env.step(actions) for env in envs]
        for ours, theirs in zip(*(step.slots for step in steps), strict=True):
            assert ours.observation.equal(theirs.observation)
            assert ours.reward.equal(theirs.reward)
    assert [whole.unfused, envs[0].games.unfused] == ["", ""]


def test_failed_compilation_falls_back_to_unfused_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(function: object, *, fullgraph: bool) -> object:
        def fails(*args: object) -> object:
            raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\n\nand much more")

        return fails

    monkeypatch.setattr(stepping.torch, "compile", compile)
    monkeypatch.setattr(stepping, "missing_compiler", lambda device: "")
    tree = compile_tree("kuhn_poker")
    games, uniform = TreeGames(tree, "cpu", fused=True), [torch.from_numpy(tree.uniform(p)[None]) for p in range(2)]
    assert games.unfused == ""
    assert games.play(uniform, 50, seed=1).returns.equal(TreeGames(tree, "cpu").play(uniform, 50, seed=1).returns)
    assert games.unfused == "InvalidCxxCompiler: No working C++ compiler found"
    monkeypatch.setattr(stepping, "missing_compiler", lambda device: f"there is none for {device}")
    games = TreeGames(tree, "cpu", fused=True)
    assert games.play(uniform, 50, seed=1).returns.shape == (50, 2)
    assert games.unfused == "there is none for cpu"


@pytest.mark.gpu
def test_a_gpu_plays_the_same_games(gpu: str) -> None:
    """One kernel a step there, operation by operation on the CPU."""
    tree = compile_tree("leduc_poker")
    here, there = TreeGames(tree, "cpu"), TreeGames(tree, gpu, fused=True)
    tables, choice = [torch.from_numpy(many) for many in everyones(tree, 2)], [torch.arange(3000) % 2] * 2
    wanted = here.play(tables, 3000, choice=choice, seed=4)
    found = there.play([t.to(gpu) for t in tables], 3000, choice=[c.to(gpu) for c in choice], seed=4)
    assert found.returns.cpu().equal(wanted.returns)
    assert found.decisions.cpu().equal(wanted.decisions)
    env, other = (TreeDeviceEnv(tree, 100, device, fused=device == gpu) for device in ("cpu", gpu))
    rng, step, theirs = np.random.default_rng(0), env.reset(2), other.reset(2)
    for _ in range(20):
        for ours, slots in zip(step.slots, theirs.slots, strict=True):
            for name in ("observation", "due", "reward", "ended"):
                assert getattr(slots, name).cpu().equal(getattr(ours, name)), name
        actions = at_random(env, step, rng)
        step, theirs = env.step(actions), other.step(tuple(action.to(gpu) for action in actions))
    assert [there.unfused, other.games.unfused] == ["", ""]


# ---------------------------------------------------------------------------------------------- what is read, what is refused


def test_nothing_is_read_back() -> None:
    tree = compile_tree(GOOFSPIEL)
    tables = [torch.from_numpy(many).to("meta") for many in everyones(tree, 4)]
    choice = [torch.zeros(7, dtype=torch.int64, device="meta")] * tree.num_players
    assert TreeGames(tree, "meta").play(tables, 7, choice=choice, seed=0).returns.shape == (7, tree.num_players)
    env = TreeDeviceEnv(tree, 5, "meta")
    env.reset(1, episodes=3)
    step = env.step((torch.zeros(5, 1, dtype=torch.int64, device="meta"),) * tree.num_players)
    assert step.slots[0].reward.device.type == "meta"


def test_tree_stepping_rejects_mismatched_arguments() -> None:
    tree = compile_tree("kuhn_poker")
    games, table = TreeGames(tree, "cpu"), torch.from_numpy(tree.uniform(0)[None])
    with pytest.raises(PolicyError, match=r"expected torch.float64 of shape \(policies, 6, 2\) on cpu"):
        games.play([table.float(), table], 3, seed=0)
    with pytest.raises(PolicyError, match=r"have \[1, 2\] tables; give `choice`"):
        games.play([table, torch.cat([table, table])], 3, seed=0)
    with pytest.raises(PolicyError, match=r"choice has shapes \[\(3,\), \(2,\)\]; expected \(3,\)"):
        games.play([table, table], 3, choice=[torch.zeros(3).long(), torch.zeros(2).long()], seed=0)
    with pytest.raises(PolicyError, match="tables of 1 players"):
        games.play([table], 3, seed=0)
    with pytest.raises(EnvError, match="num_envs is 0"):
        TreeDeviceEnv(tree, 0, "cpu")
    env = TreeDeviceEnv(tree, 1, "cpu")
    with pytest.raises(EnvError, match="before its first reset"):
        env.step((torch.zeros(1, 1).long(),) * 2)
    with pytest.raises(EnvError, match="episodes is 0"):
        env.reset(0, episodes=0)
