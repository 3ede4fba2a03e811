"""A discrete-event model of a distributed run: one driver, its learners, rollout workers, evaluators, and the network between them.

    driver   --request--> worker --answer--> driver            (`Run._ask`, `Run._worker`, `Run._gather`)
    learner  --weights--> one copy a node -> its workers       (`Run._learn`, `Run._fetch`)

Parts are generator functions of SimPy; what may be busy is a `Station`. The order of what the driver does is that of
`ludus.training.training` and `ludus.rollout.manager`: it takes the tasks in turn, and where it learns itself, it does nothing else then.
Times are constant, so a run of the model is the same each time. `benchmarks.capacity_scenarios` has the constants and the runs.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import simpy

Process = Generator[Any, Any, Any]
SLICES, IN_FLIGHT, AHEAD = (
    10,
    2,
    4,
)  # pieces of an order on shared cores; requests of a worker; matches that are given out at a time


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of any run spend.

    Attributes:
        call: Seconds of the driver to send a request to one worker.
        named: Seconds of the driver for each policy that a request names.
        answer: Seconds of the driver to take the answer of one worker.
        byte: Seconds per byte of an answer, of who sends it and of who takes it.
        look: Seconds of the driver for each answer that is owed, each time it looks which have come.
        pair: Seconds of the driver for each pair of workers, in each asynchronous iteration.
        trip: Seconds from a request to its answer between two processes that do nothing else.
        load: Seconds of a worker per byte of new weights.
        generation: Seconds of the driver from the last match of a generation to the first request of the next.
        serve: Seconds of an inference server for a request.
        sample: Seconds of a learner for a row that it gets from shards of tables.
        latency: Seconds of a message between nodes. Assumed.
        bandwidth: Bytes per second of a node's network. Assumed.
        per_node: Workers of a node. Assumed.
    """

    call: float
    named: float
    answer: float
    byte: float
    look: float
    pair: float
    trip: float
    load: float
    generation: float
    serve: float
    sample: float
    latency: float = 1e-4
    bandwidth: float = 1.25e9
    per_node: int = 62


@dataclass(frozen=True, slots=True)
class Work:
    """What is played and learned.

    Attributes:
        rows: Decisions that are learned from, of one step of a worker.
        wait: Seconds of such a step in which the worker waits.
        play: Seconds of a core that its environments and the loop take.
        act: Seconds of a core that its policies take.
        steps: Steps of a request.
        learn: Seconds of a learner's core for a decision, all epochs together.
        row_bytes: Bytes of a decision on its way to the learner.
        weights: Bytes of a policy.
        updates: Gradient steps of an iteration.
        named: Policies that a request names.
        iterations: Of a training task.
        matches: Of a generation; 0: only training is looked at.
        match_steps: Steps of a match, if one worker plays it alone.
        split: Workers that a match can be divided among.
    """

    rows: float
    wait: float
    play: float
    act: float
    steps: float
    learn: float
    row_bytes: float
    weights: float
    updates: int = 32
    named: int = 2
    iterations: int = 8
    matches: int = 0
    match_steps: float = 0.0
    split: int = 1


@dataclass(frozen=True, slots=True)
class Setup:
    """How it is run: the options of `runtime` and `evaluation` with these names.

    Attributes:
        workers: Rollout workers.
        mode: sync or async.
        tasks: Training tasks in progress.
        trainers: Ranks that learn together; 0: the driver learns.
        table_shards: 0: rows lie with the learner.
        servers: Whether each node has an inference server.
        evaluators: Processes that play matches while others train (`evaluation.workers`).
        tree: Whether nodes pass weights on to each other, instead of all getting them from the learner's node.
        cores: That all parts share, on one machine; None: every part has its own, on a cluster.
        slower: Times that the first worker takes for a step.
    """

    workers: int
    mode: Literal["sync", "async"] = "async"
    tasks: int = 1
    trainers: int = 0
    table_shards: int = 0
    servers: bool = False
    evaluators: int = 0
    tree: bool = False
    cores: int | None = None
    slower: float = 1.0


class Outcome(NamedTuple):
    """rate: decisions learned from per second. busy: share of the time that each station was: the driver with messages and with learning
    (the latter is the trainers', if there are any), the network of the driver's node, workers, the busiest inference server."""

    rate: float
    busy: dict[str, float]


class Station:
    """What does one thing at a time, and the seconds that it was busy."""

    def __init__(self, env: simpy.Environment, capacity: int = 1) -> None:
        self._env, self._resource = env, simpy.Resource(env, capacity)
        self.capacity, self.busy = capacity, 0.0

    def use(self, seconds: float) -> Process:
        """Wait for a turn, and take it."""
        with self._resource.request() as turn:
            yield turn
            yield self._env.timeout(seconds)
        self.busy += seconds


class Order(NamedTuple):
    """A request to one worker. answers: where its answer goes. version: of the weights that it names; None: a match."""

    worker: int
    steps: float
    answers: simpy.Store
    version: tuple[int, int] | None


class Run:
    """One run of the model: a training task or several at a time, `iterations` each, then matches."""

    def __init__(self, costs: Costs, work: Work, setup: Setup) -> None:
        self.costs, self.work, self.setup = costs, work, setup
        env = self.env = simpy.Environment()
        self.cores = Station(env, setup.cores) if setup.cores else None
        self.driver, self.link, self.learner = Station(env), Station(env), Station(env)
        self.worker = Station(env, setup.workers)
        nodes = 1 if setup.cores else -(-setup.workers // costs.per_node)
        self.nodes, self.remote = nodes, setup.cores is None
        self.servers = [Station(env) for _ in range(nodes)]
        self.inbox = [simpy.Store(env) for _ in range(setup.workers)]
        self.answers = [simpy.Store(env) for _ in range(setup.tasks + 1)]  # the last one's are matches
        self.owed = [[0] * setup.workers for _ in range(setup.tasks)]  # requests that each worker has
        self.versions = [0] * setup.tasks
        self.there: dict[tuple[int, tuple[int, int]], simpy.Event] = {}
        self.matches = work.matches
        self.marks: list[tuple[float, float, dict[str, float]]] = []  # seconds, decisions learned so far, busy seconds
        self.learned = 0.0

    def outcome(self, *, warm: int = 0, cool: int = 0) -> Outcome:
        """Run it, and return what came of it between its first `warm` and its last `cool` iterations of each task."""
        for k in range(self.setup.workers):
            self.env.process(self._worker(k))
        playing = [self.env.process(self._evaluator()) for _ in range(self.setup.evaluators)]
        self._mark()
        self.env.run(self.env.process(self._driver(playing)))
        (first, before, idle), (last, after, busy) = (
            self.marks[k] for k in (warm * self.setup.tasks, -1 - cool * self.setup.tasks)
        )
        seconds = last - first
        return Outcome((after - before) / seconds, {name: (busy[name] - idle[name]) / seconds for name in busy})

    def _mark(self) -> None:
        stations = {"messages": self.driver, "learning": self.learner, "network": self.link, "workers": self.worker}
        busy = {name: station.busy / station.capacity for name, station in stations.items()}
        busy["servers"] = max(server.busy for server in self.servers)
        self.marks.append((self.env.now, self.learned, busy))

    # ---------------------------------------------------------------------------------------------------- the driver

    def _driver(self, playing: list[simpy.Process]) -> Process:
        setup, left = self.setup, [self.work.iterations] * self.setup.tasks
        for task in range(setup.tasks):
            yield from self._ask(task, left[task])
        while any(left):
            for task in [task for task in range(setup.tasks) if left[task]]:
                yield from self._gather(task)
                yield from self._learn(task)
                left[task] -= 1
                if left[task]:
                    yield from self._ask(task, left[task])
                self._mark()
        if self.work.matches:
            yield from self._play_matches()
            yield self.env.all_of(playing)
            yield from self._spend(self.costs.generation)
            self._mark()

    def _spend(self, seconds: float) -> Process:
        self.driver.busy += seconds
        yield from self._core(seconds)

    def _core(self, seconds: float) -> Process:
        if self.cores is None:
            yield self.env.timeout(seconds)
        else:
            yield from self.cores.use(seconds)

    def _ask(self, task: int, left: int) -> Process:
        """Send a request to every worker that may have one more, and each of them one before the second. left: iterations to come."""
        costs, owed, asynchronous = self.costs, self.owed[task], self.setup.mode == "async"
        if asynchronous:
            yield from self._spend(costs.pair * len(owed) ** 2)
        for most in range(1, 1 + (min(IN_FLIGHT, left) if asynchronous else 1)):
            for worker in range(len(owed)):
                if owed[worker] < most:
                    owed[worker] += 1
                    version = task, self.versions[task]
                    yield from self._send(Order(worker, self.work.steps, self.answers[task], version))

    def _send(self, order: Order) -> Process:
        yield from self._spend(self.costs.call + self.costs.named * self.work.named)
        self.inbox[order.worker].put(order)

    def _gather(self, task: int) -> Process:
        """Take one answer for every worker."""
        owed, answers = self.owed[task], self.answers[task]
        rows = 0.0 if self.setup.trainers else self.work.rows * self.work.steps
        each = self.costs.answer + self.costs.byte * rows * self.work.row_bytes + self._handed_on()
        taken, waiting = 0, sum(owed)
        while taken < self.setup.workers:
            came = [(yield answers.get())]
            yield from self._spend(self.costs.look * waiting)
            ready = answers.items[: self.setup.workers - taken - 1]  # the others wait for the next iteration
            del answers.items[: len(ready)]
            came += ready
            for order in came:
                owed[order.worker] -= 1
            taken += len(came)
            waiting -= len(came)
            yield from self._spend(len(came) * each)

    def _handed_on(self) -> float:
        """Return the driver's seconds to tell the ranks of one asynchronous answer, for which it waits."""
        if not self.setup.trainers or self.setup.mode == "sync":
            return 0.0
        return self.setup.trainers * self.costs.call + self.costs.trip + self.costs.latency

    def _learn(self, task: int) -> Process:
        """Learn from what was gathered, and publish the weights."""
        costs, work, setup = self.costs, self.work, self.setup
        rows = work.rows * work.steps * setup.workers
        each = work.learn + (costs.sample if setup.table_shards else 0.0)
        if not setup.trainers:
            seconds = rows * each + work.weights * costs.load
            self.learner.busy += seconds
            yield from self._core(seconds)
        else:  # every rank takes all rows, learns from its share, and sums gradients with the others
            summed = work.updates * 2 * (work.weights / costs.bandwidth + costs.latency) if setup.trainers > 1 else 0.0
            taken = rows * work.row_bytes * (costs.byte + 1 / costs.bandwidth)
            yield from self.learner.use(taken + rows * each / setup.trainers + summed + work.weights * costs.load)
        self.learned += rows
        self.versions[task] += 1

    def _play_matches(self) -> Process:
        """Play the matches that are left, each by all workers: also those that have no episode of it are asked."""
        answers, waiting, workers = self.answers[-1], 0, self.setup.workers
        playing = min(workers, self.work.split)
        share = self.work.match_steps / playing
        while self.matches or waiting:
            while self.matches and waiting < AHEAD:
                self.matches -= 1
                waiting += 1
                for worker in range(playing):
                    yield from self._send(Order(worker, share, answers, None))
                yield from self._spend((workers - playing) * (self.costs.call + self.costs.named * self.work.named))
            for _ in range(playing):
                yield answers.get()
            yield from self._spend(workers * self.costs.answer)
            waiting -= 1

    # ---------------------------------------------------------------------------------------------------- those who play

    def _worker(self, worker: int) -> Process:
        node, pace = worker // self.costs.per_node, self.setup.slower if worker == 0 else 1.0
        while True:
            order = yield self.inbox[worker].get()
            begun = self.env.now
            yield self.env.timeout(self.costs.trip / 2 + self.costs.latency * self.remote)
            if order.version is not None:
                yield from self._fetch(node if self.remote else 0, order.version)
            yield from self._play(self.servers[node if self.remote else 0], order.steps, pace)
            self.worker.busy += self.env.now - begun
            rows = 0.0 if order.version is None else self.work.rows * order.steps
            yield from self._core(self.costs.byte * rows * self.work.row_bytes)
            if self.remote and not self.setup.trainers:
                yield from self.link.use(rows * self.work.row_bytes / self.costs.bandwidth)
            order.answers.put(order)

    def _play(self, server: Station, steps: float, pace: float) -> Process:
        work, served = self.work, self.setup.servers
        slices = SLICES if (self.cores or served) and steps else 1
        part = steps / slices
        for _ in range(slices):
            yield self.env.timeout(part * work.wait * pace)
            yield from self._core(part * (work.play * pace + (0.0 if served else work.act)))
            if served:
                yield from server.use(part * self.costs.serve)
                yield self.env.timeout(part * self.costs.trip)

    def _fetch(self, node: int, version: tuple[int, int]) -> Process:
        """Wait until weights are on the node, for which its first worker sees, and load them."""
        costs, size = self.costs, self.work.weights
        if self.remote and (node, version) not in self.there:
            event = self.there[node, version] = self.env.event()
            if self.setup.tree:
                yield self.env.timeout(math.ceil(math.log2(self.nodes + 1)) * (size / costs.bandwidth + costs.latency))
            else:
                yield from self.link.use(size / costs.bandwidth)
            event.succeed()
        elif self.remote:
            yield self.there[node, version]
        yield from self._core(size * costs.load)

    def _evaluator(self) -> Process:
        """Play whole matches alone while others train."""
        while self.matches:
            self.matches -= 1
            work = self.work
            yield self.env.timeout(self.costs.trip + work.match_steps * (work.wait + work.play + work.act))
