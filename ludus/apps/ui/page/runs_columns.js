// The columns of the list of runs: what each shows of a run, and of an experiment, whose row is over its runs.
//
// A row is a run as the server tells it, or { experiment: its line, members: [runs], id, name }.

import { h, icon, svg, time } from "./dom.js";
import { number, percent, span, whole } from "./charts.js";

export const kind = (run) => run.state.split(" ")[0];
export const AT_WORK = ["running", "paused", "stopping"];
export const SETTING = "setting:";  // how the key of a column begins that shows a setting

const NONE = "–";
const known = (value) => value !== null && value !== undefined;
const runsOf = (row) => row.members ?? [row];
const some = (key) => (rows) => rows.some((row) => runsOf(row).some((run) => known(run[key])));

function mean(values) {
  const there = values.filter(known);
  return there.length ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
}

// What all have in common; null where they differ.
function common(values) {
  return values.every((value) => value === values[0]) ? values[0] : null;
}

// A column of numbers: of an experiment the mean.
function amount(key, title, hint, of, format = number) {
  const value = (row) => mean(runsOf(row).map(of));
  return { key, title, hint, value, numeric: of, format: (v, row) => (row.members && known(v) ? h("span", { title: `mean of ${row.members.length} runs`, text: format(v) }) : format(v)) };
}

// A column of texts: of an experiment what its runs have in common.
function label(key, title, hint, of) {
  return { key, title, hint, text: true, value: (row) => common(runsOf(row).map(of)) ?? "", format: (v) => v || "differs" };
}

// The main measures: of an experiment the mean and its interval.
function measure(key, title, hint, tip, { prefix = () => "", share = false } = {}) {
  const format = (value, row) => {
    if (!row.members) return known(value) ? h("span", { title: tip(row), text: `${prefix(row)}${share ? percent(value) : number(value)}` }) : NONE;
    const { experiment } = row, interval = experiment[key];
    if (!experiment.same) return h("span", { class: "faint", title: "Its runs differ in more than the seed: no mean is taken. Open it.", text: NONE });
    if (!interval) return NONE;
    const tail = known(interval.half_width) ? ", 95% interval (Student's t)" : "";
    return h("span", { title: `mean of ${interval.n} ${interval.n === 1 ? "run" : "runs"}${tail}`, text: share ? `${estimate({ mean: 100 * interval.mean, half_width: known(interval.half_width) ? 100 * interval.half_width : null })}%` : estimate(interval) });
  };
  return { key, title, hint, only: some(key), numeric: (run) => run[key], value: (row) => (row.members ? row.experiment[key]?.mean ?? null : row[key]), format };
}

// "1.40 ± 0.25": to the second digit of the half width.
function estimate({ mean: value, half_width: width }) {
  if (!known(width)) return number(value);
  const places = 1 - Math.floor(Math.log10(width || 1));
  if (width === 0 || places > 6) return `${number(value)} ± ${number(width)}`;
  return `${value.toFixed(Math.max(0, places)).replace("-", "\u2212")} ± ${width.toFixed(Math.max(0, places))}`;
}

export const bytes = (size) => (!known(size) ? NONE : size >= 1e9 ? `${(size / 1e9).toFixed(1)} GB` : `${Math.round(size / 1e6)} MB`);

// "0/0-25 −0.115 · 1/1-25 0.052": policy by policy, as of the newest generation of training.
function learners(run) {
  return run.returns.map(({ population, policy, value }) => `${population}/${policy} ${number(value)}`).join(" · ");
}

// Columns by key; those of settings are made by `settingColumn`.
export const COLUMNS = [
  { key: "state", title: "state", text: true, value: (row) => runsOf(row).map((run) => run.state).join(" "), format: states },
  { key: "game", title: "game", text: true, value: (row) => common(runsOf(row).map((run) => run.game)) ?? "", format: game },
  { key: "progress", title: "progress", value: (row) => mean(runsOf(row).map((run) => run.fraction)) ?? 0, format: (_, row) => (row.members ? progressOfAll(row) : progress(row)) },
  { key: "trend", title: "trend", sorts: false, hint: "NashConv over the generations, or games against the run's start; of a single player, the return of the newest policy in training", only: (rows) => rows.some((row) => runsOf(row).some((run) => run.trend)), format: (_, row) => sparkline(runsOf(row)) },
  measure("nash_conv", "NashConv", "After the newest generation; ≥ where it is a lower bound", (run) => `after generation ${run.generation}${run.exact ? "" : ", a lower bound"}`, { prefix: (run) => (run.exact ? "" : "≥ ") }),
  measure("win_rate", "win rate", "Of the newest meta-strategies against the run's start, where NashConv is not known; a draw counts as half", (run) => run.score_of, { share: true }),
  measure("gain", "payoff against the start", "Of the newest meta-strategies, above what the start earns itself, where NashConv is not known", (run) => run.score_of),
  measure("return", "return", "Of the newest policy of a single player", (run) => run.return_of),
  { key: "health", title: "health", text: true, value: (row) => runsOf(row).reduce((sum, run) => sum + 1000 * run.errors + run.warnings, 0), format: (_, row) => health(row) },
  { key: "began", title: "age", hint: "Since it began", value: (row) => (known(begin(row)) ? -begin(row) : null), format: (_, row) => (known(begin(row)) ? time(begin(row), age(begin(row))) : NONE) },
  { key: "notes", title: "notes", text: true, only: (rows) => rows.some((row) => runsOf(row).some((run) => run.notes || run.notes_problem)), value: (row) => (row.members ? "" : row.notes_problem || row.notes), format: (text) => (text ? h("span", { class: "run-notes", title: text, text }) : "") },
  { key: "returns", title: "returns in training", text: true, hint: "Of each learner in its newest rollouts, against its opponents there", value: (row) => (row.members ? "" : learners(row)), format: (text, row) => h("span", { title: row.returns?.length ? `generation ${row.returns[0].generation}` : "", text: text || NONE }) },
  label("scenario", "scenario", "Preset or kind", (run) => run.scenario),
  label("algorithm", "algorithm", "", (run) => run.algorithm),
  amount("seed", "seed", "", (run) => run.seed, (value) => (Number.isInteger(value) ? String(value) : NONE)),
  amount("players", "players", "", (run) => run.players, whole),
  amount("policies", "policies", "Of all populations", (run) => run.policies, whole),
  amount("generation", "generations", "Finished ones", (run) => run.generation, whole),
  amount("episodes", "episodes", "Of training", (run) => run.episodes, whole),
  amount("steps_per_second", "steps/s", "Environment steps per second of wall time, over the whole run", (run) => run.usage.steps_per_second, (v) => (known(v) ? whole(v) : NONE)),
  amount("seconds", "wall time", "Of all sessions", (run) => run.seconds, span),
  amount("processor", "processor", "Mean number of busy cores", (run) => run.usage.processor, (v) => (known(v) ? v.toFixed(2) : NONE)),
  amount("memory", "memory", "Largest, of the driver and its processes", (run) => run.usage.memory, bytes),
  amount("warnings", "warnings", "", (run) => run.warnings, whole),
  amount("errors", "errors", "", (run) => run.errors, whole),
];
export const DEFAULT = ["state", "game", "progress", "trend", "nash_conv", "win_rate", "gain", "return", "health", "began", "notes"];

// Results by name, for the filter.
export const RESULTS = new Map(COLUMNS.filter((column) => column.numeric).map((column) => [column.key, column.numeric]));

// settings(run) -> { name: value }, or undefined while they are on the way.
export function settingColumn(key, settings) {
  const name = key.slice(SETTING.length);
  const of = (run) => settings(run)?.[name];
  const value = (row) => {
    const values = runsOf(row).map(of), one = common(values);
    return one === undefined ? null : typeof one === "number" ? one : one === null ? (values[0] === null ? "null" : null) : String(one);
  };
  const format = (shown, row) => (known(shown) ? String(shown) : row.members && runsOf(row).some((run) => of(run) !== undefined) ? "differs" : NONE);
  return { key, title: name.replaceAll(".", ".\u200b"), hint: `The setting ${name}`, text: true, value, format };
}

// Settings that not all of these runs have in common, then the others, each in the order of a scenario.
export function settingNames(runs, settings) {
  const all = new Map();  // name -> the first value, or undefined where there are several
  let first = true;
  for (const run of runs) {
    const own = settings(run) ?? {};
    for (const [name, value] of Object.entries(own)) {
      if (!all.has(name)) all.set(name, first ? value : DIFFERS);
      else if (all.get(name) !== value) all.set(name, DIFFERS);
    }
    for (const name of all.keys()) if (!Object.hasOwn(own, name)) all.set(name, DIFFERS);
    first = false;
  }
  const names = [...all.keys()];
  return { differ: names.filter((name) => all.get(name) === DIFFERS), same: names.filter((name) => all.get(name) !== DIFFERS) };
}
const DIFFERS = Symbol("differs");

// ------------------------------------------------------------------------------------------------------------ cells

const pill = (text, cause = "") => h("span", { class: `pill ${text.split(" ")[0]}`, title: cause || null, text });

function states(_, row) {
  if (!row.members) return pill(row.state, row.cause);
  const all = Object.entries(row.experiment.states);
  return h("span", { class: "pills" }, all.map(([state, n]) => h("span", { class: `pill ${state.split(" ")[0]}`, text: all.length === 1 ? state : `${n} ${state}` })));
}

function game(name, row) {
  const runs = runsOf(row), algorithm = common(runs.map((run) => run.algorithm)) ?? "several algorithms";
  const [family, ...rest] = name.split("/");
  return h("span", null, name ? family : "several games", rest.length ? ["/", h("wbr"), rest.join("/")] : null, h("span", { class: "under", text: row.members ? `${algorithm} · ${runs.length} ${runs.length === 1 ? "run" : "runs"}` : `${algorithm} · seed ${row.seed}` }));
}

const begin = (row) => (row.members ? row.members.map((run) => run.began).filter(known).sort((a, b) => a - b)[0] ?? null : row.began);

// In its largest unit.
function age(began) {
  const seconds = Date.now() / 1000 - began;
  return seconds < 60 ? "< 1 min" : span(seconds).split(" ").slice(0, 2).join(" ");
}

const bar = (share) => h("span", { class: "progress", "aria-hidden": "true" }, h("i", { style: { width: percent(share, 1) } }));

function progress(run) {
  const share = run.fraction, busy = AT_WORK.includes(kind(run));
  const text = run.generations === 0 ? run.doing || "no training" : known(run.generations) ? `${whole(run.generation)} of ${whole(run.generations)}` : `generation ${whole(run.generation)}`;
  const under = busy && known(run.seconds_left) ? `${span(run.seconds_left)} left` : span(run.seconds);
  const policies = `${whole(run.policies)} ${run.policies === 1 ? "policy" : "policies"}`;
  return h("span", { class: "going-on" }, busy && known(share) ? bar(share) : null, text, h("span", { class: "under", text: `${under} · ${policies}` }));
}

function progressOfAll({ members }) {
  const busy = members.filter((run) => AT_WORK.includes(kind(run))), share = mean(members.map((run) => run.fraction));
  const ended = members.filter((run) => run.state === "finished").length;
  return h("span", { class: "going-on" }, busy.length && known(share) ? bar(share) : null, `${ended} of ${members.length} finished`, h("span", { class: "under", text: `${span(mean(members.map((run) => run.seconds)))} a run` }));
}

function health(row) {
  const runs = runsOf(row), errors = runs.reduce((sum, run) => sum + run.errors, 0), warnings = runs.reduce((sum, run) => sum + run.warnings, 0);
  if (!warnings && !errors && runs.some((run) => ["failed", "interrupted"].includes(run.state))) return h("span", { class: "faint", text: NONE });
  if (!warnings && !errors) return h("span", { class: "well" }, icon("check"), " ok");
  const counts = [[errors, "error"], [warnings, "warning"]].filter(([n]) => n);
  const text = counts.map(([n, what]) => `${n} ${what}${n > 1 ? "s" : ""}`).join(", ");
  const shown = [icon("warning"), ` ${whole(errors + warnings)}`], title = [text, row.last_note].filter(Boolean).join(": ");
  if (row.members) return h("span", { class: errors ? "bad" : "warned", title, "aria-label": text, role: "img" }, shown);
  return h("a", { class: errors ? "bad" : "warned", href: `#/run/${row.id}/log`, title, "aria-label": text }, shown);
}

// ------------------------------------------------------------------------------------------------------------ a small chart

const WIDE = 96, HIGH = 22, MANY = 8;  // of its field; runs that are drawn in one

// Lines of some runs over one common axis of values; a single value is a dot.
function sparkline(runs) {
  const drawn = runs.filter((run) => run.trend).slice(0, MANY), values = drawn.flatMap((run) => run.trend.values).filter(known);
  if (!values.length) return NONE;
  const low = Math.min(...values), high = Math.max(...values);
  const up = (value) => (high === low ? HIGH / 2 : HIGH - 2 - ((HIGH - 4) * (value - low)) / (high - low));
  const line = ({ trend }) => {
    const at = (k) => (trend.values.length === 1 ? WIDE / 2 : 2 + ((WIDE - 4) * k) / (trend.values.length - 1));
    const points = trend.values.map((value, k) => (known(value) ? [at(k), up(value)] : null)).filter(Boolean);
    const [x, y] = points[points.length - 1];
    return [svg("polyline", { points: points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ") }), svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2 })];
  };
  const told = drawn.length === 1 ? `${drawn[0].trend.title}: from ${number(drawn[0].trend.values.find(known))} to ${number(drawn[0].trend.values.findLast(known))}, between ${number(low)} and ${number(high)}` : `${drawn[0].trend.title} of ${drawn.length} runs: between ${number(low)} and ${number(high)}`;
  return svg("svg", { class: "trend", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": told }, svg("title", null, told), drawn.map(line));
}
