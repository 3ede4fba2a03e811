// The newest points of what trains now, as the driver tells them about once a second: provisional, until the stored ones take their place.
//
//   source.js: record(run, status) ──► points of each task, kept while the page is open ──► tails(run, learners): the dashed ends of curves

import { number, percent, short, span, whole } from "./charts.js";

const KEPT = 400;  // points of a task; of more every other one is left out
const AXES = ["decisions", "episodes", "updates", "seconds"];
const MACHINE = "machine";  // the name under which processor and memory are
const MB = 2 ** 20;

const runs = new Map();  // run -> { tasks: Map of task -> { learner, population, policy, points }, machine: [{ seconds, values }] }

// Keeps what a LiveStatus tells. null: no driver is at work, and nothing is kept.
export function record(run, status) {
  if (!status?.points) return void runs.delete(run);
  const before = runs.get(run), tasks = new Map();
  for (const { task, learner, population, policy, counts, values } of status.points) {
    const points = before?.tasks.get(task)?.points ?? [];
    if (!(counts.decisions <= points.at(-1)?.counts.decisions)) points.push({ counts, values });
    tasks.set(task, { learner, population, policy, points: thinned(points) });
  }
  const machine = before?.machine ?? [], { seconds } = status.usage;
  if (seconds > (machine.at(-1)?.seconds ?? -1)) machine.push({ seconds, values: hardware(status.usage) });
  runs.set(run, { tasks, machine: thinned(machine) });
}

const thinned = (points) => (points.length > KEPT ? points.filter((_, k) => k % 2 === 1 || k === points.length - 1) : points);

function hardware({ processor, memory, gpu_share: share, gpu_memory: gpu }) {
  const known = { processor, "memory (MB)": memory / MB, "GPU": share, "GPU memory (MB)": gpu / MB };
  return Object.fromEntries(Object.entries(known).filter(([, value]) => Number.isFinite(value)));
}

// Of the panel `learning`'s learners, and of those that are not in it yet, by name: { decisions, episodes, updates, seconds, mean, metrics:
// { name: values } }, each a list of the provisional points after the stored ones. "machine": over the run's seconds.
// only: { population, policy } of one policy, or null.
export function tails(run, learners, only = null) {
  const held = runs.get(run), out = {};
  for (const [task, { learner, population, policy, points }] of held?.tasks ?? []) {
    if (only && (String(population) !== only.population || policy !== only.policy)) continue;
    const known = learners.find((one) => one.learner === learner);
    const end = known ? known.over.decisions.at(-1) : -1, base = start(known, task);
    const fresh = points.filter(({ counts }) => counts.decisions + base.decisions > end);
    if (fresh.length) out[learner] = tail(fresh.map(({ counts, values }) => ({ counts: Object.fromEntries(AXES.map((axis) => [axis, counts[axis] + base[axis]])), values })));
  }
  if (held?.machine.length) out[MACHINE] = tail(held.machine.map(({ seconds, values }) => ({ counts: { seconds }, values })));
  return out;
}

// What a learner had counted before a task began: its curve is that of all of its tasks.
function start(learner, task) {
  if (!learner) return Object.fromEntries(AXES.map((axis) => [axis, 0]));
  return learner.task === task ? learner.before : Object.fromEntries(AXES.map((axis) => [axis, learner.over[axis].at(-1)]));
}

function tail(points) {
  const names = [...new Set(points.flatMap(({ values }) => Object.keys(values)))].filter((name) => !name.startsWith("return"));
  const column = (name) => points.map(({ values }) => values[name] ?? null);
  return {
    ...Object.fromEntries(AXES.map((axis) => [axis, points.map(({ counts }) => counts[axis] ?? null)])),
    mean: column("return"),
    metrics: Object.fromEntries(names.map((name) => [name.replaceAll("_", " "), column(name)])),
  };
}

// The learners of the panel, and those that have only provisional points so far, without a stored one.
export function withNewcomers(learners, byName) {
  const known = new Set(learners.map(({ learner }) => learner));
  const fresh = Object.entries(byName).filter(([name]) => name !== MACHINE && !known.has(name)).map(([learner, { metrics }]) => ({
    learner, in_flight: true, mean: [], spread: [], over: Object.fromEntries(AXES.map((axis) => [axis, []])),
    metrics: Object.fromEntries(Object.keys(metrics).map((name) => [name, []])),
  }));
  return [...learners, ...fresh];
}

// "self-play learner, 60% done, about 40 s left": of the tasks in progress. elapsed: seconds since the status came.
export function doing(status, elapsed = 0) {
  const left = status.tasks_left === null || status.tasks_left === undefined ? null : status.tasks_left - elapsed;
  return [status.doing, status.fraction === null ? "" : `${percent(status.fraction)} done`, left > 2 ? `about ${span(Math.round(left))} left` : ""].filter(Boolean).join(", ");
}

// "population 0: return 0.207 ± 0.96, length 17.8, 1,204 steps/s, policy loss 0.31": a point of status.points, as the terminal's line has it.
export function describe({ learner, values }) {
  const { return: mean, return_spread: spread, episode_length: length, steps_per_second: steps } = values;
  const losses = Object.keys(values).filter((name) => /loss$|entropy$/.test(name)).slice(0, 3);
  const told = [
    mean === undefined ? "" : `return ${number(mean, 3)}${spread === undefined ? "" : ` ± ${number(spread, 2)}`}`,
    length === undefined ? "" : `length ${number(length, 3)}`,
    steps === undefined ? "" : `${whole(steps)} steps/s`,
    ...losses.map((name) => `${name.replaceAll("_", " ")} ${number(values[name], 3)}`),
  ];
  return `${learner}: ${told.filter(Boolean).join(", ")}`;
}

// "1,204 steps/s · processor 1.9 · memory 820 MB": what the run does and uses now; "" where nothing is known.
export function speed({ points, usage = {} }) {
  const active = (points ?? []).filter(({ over }) => !over);
  const steps = usage.wall > 1 && usage.env_steps ? usage.env_steps / usage.wall : active.reduce((sum, { values }) => sum + (values.steps_per_second ?? 0), 0);
  const machine = hardware(usage);
  return [
    steps ? `${whole(steps)} steps/s` : "",
    "processor" in machine ? `processor ${short(Number(machine.processor.toFixed(2)))} ${machine.processor === 1 ? "core" : "cores"}` : "",
    "memory (MB)" in machine ? `memory ${whole(machine["memory (MB)"])} MB` : "",
    "GPU" in machine ? `GPU ${percent(machine.GPU)}` : "",
    "GPU memory (MB)" in machine ? `GPU memory ${whole(machine["GPU memory (MB)"])} MB` : "",
  ].filter(Boolean).join(" · ");
}

// Episodes of training so far: of the trainings that are done, and of those in progress.
export function episodes({ points, usage = {} }) {
  return (points ?? []).reduce((sum, { over, counts }) => sum + (over ? 0 : counts.episodes ?? 0), usage.episodes ?? 0);
}

// "environment 41%, learning 30%": shares of the time since the last barrier; "" where nothing is known.
export function shares({ usage = {} }) {
  const parts = Object.entries(usage).filter(([name]) => name.startsWith("seconds/")).map(([name, seconds]) => [name.slice(8), seconds]).sort((a, b) => b[1] - a[1]);
  const all = Math.max(usage.wall ?? 0, parts.reduce((sum, [, seconds]) => sum + seconds, 0));
  return parts.filter(([, seconds]) => seconds >= 0.01 * all).map(([name, seconds]) => `${name} ${percent(seconds / all)}`).join(", ");
}
