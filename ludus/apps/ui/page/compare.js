// Runs and experiments side by side: their figures with intervals, their curves, their profiles, and who is likely better.

import { card, clear, empty, h, picker, sentence, write } from "./dom.js";
import { banded, ticks } from "./axes.js";
import { lines, number, percent, short, table } from "./charts.js";
import { colour } from "./colours.js";
import { metricsGrid } from "./metrics.js";
import { View, viewTools } from "./view.js";

const AGAIN = 5000;  // milliseconds between two looks at runs that go on: intervals are a bootstrap

export async function show(root, { source, query, go }) {
  const asked = { runs: query.get("runs") ?? "", metric: query.get("metric"), apart: query.get("apart") };
  if (source.live && !asked.runs) {
    root.append(h("h1", { text: "Comparison" }), empty("No runs were chosen to compare.", h("a", { href: "#/", text: "Choose some" })));
    return undefined;
  }
  const get = () => source.get("compare", source.live ? asked : {});
  const state = { data: null, axis: null, log: null };
  const head = heading(state, { live: source.live, asked, go });
  try {
    state.data = await get();
  } catch (error) {
    if (error.status !== 400) throw error;
    root.append(head.node, empty(sentence(error.message), h("a", { href: "#/", text: "Choose other runs" })));  // another measure may do
    return undefined;
  }
  const parts = [leftOut(state), figures(state), settings(state), efficiency(state), profiles(state), improvement(state), learned(state, source, asked), all(state)];
  root.append(head.node, ...parts.map(({ node }) => node));
  const draw = () => [head, ...parts].forEach((part) => part.draw());
  draw();

  let timer = null, closed = false;
  const later = () => { timer ??= setTimeout(again, AGAIN); };
  const again = async () => {
    timer = null;
    try {
      const data = await get();
      if (closed) return;
      state.data = data;
      draw();
    } catch (error) {
      if (error.status !== 0) head.fail(error);
    }
  };
  const stops = source.live ? asked.runs.split(",").map((run) => source.onchange(run, later)) : [];
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      for (const stop of stops) stop();
      for (const part of parts) part.close?.();
    },
  };
}

const plain = (data) => data.title.replace(/ \(.*/, "");
const place = (data, name) => data.groups.findIndex((group) => group.name === name);
const colourOf = (data, k) => colour(k, Math.max(8, data.groups.length));
const last = (values) => values[values.length - 1];

function heading(state, { live, asked, go }) {
  const title = h("h1", { text: "Comparison" }), told = h("p", { class: "lead" }), wrong = h("p", { class: "hint", role: "status" });
  const choice = h("select", { class: "field", "aria-label": "Measure", on: { change: () => again({ metric: choice.value }) } },
    [["", "measure: what all have"], ["nash_conv", "NashConv"], ["return", "return"], ["training_return", "return in training"], ["win_rate", "win rate against random play"], ["against_random", "payoff against random play"]].map(([value, text]) => h("option", { value, text, selected: value === (asked.metric ?? "") })));
  const seeds = h("label", { class: "check" }, h("input", { type: "checkbox", checked: asked.apart !== "1", on: { change: (event) => again({ apart: event.target.checked ? "" : "1" }) } }), " seeds of an experiment as one");
  const again = (changed) => go(`/compare?${new URLSearchParams(Object.entries({ ...asked, ...changed }).filter(([, value]) => value))}`);
  return {
    node: h("header", { class: "run" }, h("div", { class: "who" }, title, told, wrong), live ? h("div", { class: "tools" }, seeds, choice) : null),
    fail: (error) => write(wrong, `The newest figures could not be had: ${error.message}`),
    draw() {
      const { data } = state, names = data.groups.map((group) => group.name);
      write(wrong, "");
      write(title, names.length > 3 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${last(names)}` : names[0]);
      const unfinished = data.groups.filter((group) => group.unfinished).map((group) => group.name);
      const so = unfinished.length ? ` No run of ${unfinished.join(", ")} has come to its end: what they have so far is compared.` : "";
      write(told, `On ${data.environments.join(", ")}.${data.normalised ? " Scores are normalised: 0 is the worst run of all on an environment, 1 the best." : ""}${so}`);
    },
  };
}

function leftOut(state) {
  const { node, body } = card("Left out", { hint: "These runs are excluded." });
  const list = h("ul", { class: "notes" });
  body.append(list);
  return {
    node,
    draw() {
      const out = state.data.groups.flatMap((group) => group.runs.filter((run) => !run.counted).map((run) => `${group.name}: ${run.name}: ${run.state}${run.why ? `, ${run.why}` : ""}`));
      node.hidden = !out.length;
      clear(list).append(...out.map((text) => h("li", { text })));
    },
  };
}

// Whether no group has two runs of an environment: then nothing says how much its figures vary from run to run.
const lone = (data) => data.groups.every((group) => group.single);
const runsOf = (group) => group.runs.filter((run) => run.counted);

function figures(state) {
  const { node, hint, body } = card("Figures");
  const title = node.querySelector("h2");
  return {
    node,
    draw() {
      const { data } = state, single = data.groups.filter((group) => group.single).map((group) => group.name);
      write(title, data.title);
      const several = "After the last generation: each run as a dot, the interquartile mean as a diamond with its 95% interval (a bootstrap over runs, stratified by environment).";
      const some = single.length ? ` One run only of ${single.join(", ")} (n = 1): it has no interval.` : "";
      write(hint, lone(data)
        ? `After the last generation, one run of each (n = 1). A difference may be chance: with one run there is no interval, and no interquartile mean, performance profile or probability of improvement. Compare experiments of several seeds for those (ludus train … --seeds 5).`
        : `${several}${some}`);
      const rows = data.groups.map((group, k) => {
        const runs = runsOf(group);
        return {
          label: `${group.name} (n = ${runs.length})`, ...group.iqm, colour: `var(--p${k % 8})`, hint: runs.length > 1 ? `mean ${number(group.mean.value)}, best ${number(group.best)}` : null,
          dots: data.normalised || runs.length < 2 ? [] : runs.map((run) => ({ value: run.value, label: run.name })),
        };
      });
      const published = data.baselines.map((one) => ({ label: one.name, value: one.mean, low: one.mean - one.spread, high: one.mean + one.spread, colour: "var(--soft)", hint: "published" }));
      intervals(body, { rows: [...rows, ...published], title: data.lower_is_better ? "lower is better" : "higher is better", ends: data.range });
    },
  };
}

// The difference of the groups' scenarios: a line for each setting, under the part of the scenario that it belongs to.
function settings(state) {
  const { node, hint, body } = card("Difference of the scenarios");
  const text = (value) => (value === null ? h("span", { class: "faint", text: "not set" }) : h("code", { text: typeof value === "string" ? value : JSON.stringify(value) }));
  return {
    node,
    draw() {
      const { data } = state, names = data.groups.map((group) => group.name), rows = data.settings;
      node.hidden = data.groups.length < 2;
      write(hint, rows.length ? `${rows.length} ${rows.length === 1 ? "setting differs" : "settings differ"}; names and seeds do not count. A part of another kind is named alone, as its options are its own.` : "The scenarios are the same, up to names and seeds.");
      const parts = [...new Set(rows.map(({ name }) => name.split(".")[0]))];
      const line = ({ name, values }) => h("tr", null, h("th", { scope: "row", text: name.includes(".") ? name.slice(name.indexOf(".") + 1) : name }),
        names.map((group) => h("td", { class: "text" }, values[group].flatMap((value, k) => [k ? ", " : null, text(value)]))));
      const head = h("thead", null, h("tr", null, h("th", { class: "text", scope: "col", text: "setting" }), names.map((group) => h("th", { class: "text", scope: "col", text: group }))));
      const sections = parts.map((part) => h("tbody", null,
        rows.some(({ name }) => name.startsWith(`${part}.`)) ? h("tr", { class: "part-of" }, h("th", { scope: "rowgroup", colspan: String(names.length + 1), text: part })) : null,
        rows.filter(({ name }) => name.split(".")[0] === part).map(line)));
      clear(body).append(...(rows.length ? [h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Difference of the scenarios" }, h("table", { class: "difference" }, head, sections))] : []));
    },
  };
}

// A group's estimates over x as a line with its band.
const band = (name, x, estimates, own) => ({
  name, x, values: estimates.map((e) => e.value), colour: own,
  ...(estimates.some((e) => e.low !== null) ? { low: estimates.map((e) => e.low), high: estimates.map((e) => e.high) } : {}),
});

function efficiency(state) {
  const { node, head, hint, body } = card("Sample efficiency");
  const tools = h("div", { class: "tools" });
  const place_ = h("div");
  let chart = null, drawn = "";
  head.append(tools);
  body.append(place_);

  function draw() {
    const { data } = state;
    const known = data.axes.filter((axis) => data.groups.some((group) => group.curves[axis.name]));
    node.hidden = !known.length;
    if (!known.length) return;
    state.log ??= data.lower_is_better && decades(data);
    state.axis ??= data.curve_title !== plain(data) && known.some((axis) => axis.name === "decisions") ? "decisions" : known[0].name;  // where the learning curve is
    if (!known.some((axis) => axis.name === state.axis)) state.axis = known[0].name;
    const names = known.map((axis) => axis.name);
    if (drawn !== names.join()) {
      drawn = names.join();
      clear(tools).append(
        names.length > 1 ? picker("Over", names, names.indexOf(state.axis), (k) => { state.axis = names[k]; draw(); }) : "",
        picker("Scale", ["log", "linear"], state.log ? 0 : 1, (k) => { state.log = k === 0; draw(); }),
      );
    }
    const axis = known.find((one) => one.name === state.axis), title = axis.name === "generations" ? plain(data) : data.curve_title;
    write(hint, lone(data) ? `The ${title} of each run (n = 1) after so many ${axis.title}.` : `The interquartile mean over the runs of the ${title} with its 95% interval, after so many ${axis.title}. Each curve ends where its shortest run does.`);
    const curves = data.groups.flatMap((group, k) => (group.curves[axis.name] ? [band(group.name, group.curves[axis.name].x, group.curves[axis.name].iqm, () => colourOf(data, k))] : []));
    const [from, to] = [Math.min(...curves.map((one) => one.x[0])), Math.max(...curves.map((one) => last(one.x)))];
    const published = data.baselines.map((one) => ({ name: one.name, x: [from, to], values: [one.mean, one.mean], low: [one.mean - one.spread, one.mean - one.spread], high: [one.mean + one.spread, one.mean + one.spread], dashed: true, colour: () => colour(7) }));
    const shown = { xTitle: axis.title, yTitle: title, log: state.log, whole: axis.name !== "seconds", yRange: state.log ? null : data.range.filter((end) => end !== null), height: 340, series: [...curves, ...published] };
    if (chart) chart.set(shown);
    else chart = lines(place_, shown);
  }
  return { node, draw, close: () => chart?.destroy() };
}

// Over less than a decade a logarithmic axis has no room for ticks.
function decades(data) {
  const values = data.groups.flatMap((group) => Object.values(group.curves).flatMap((curve) => curve.iqm.map((e) => e.value))).filter((v) => v > 0);
  return values.length > 0 && Math.max(...values) > 10 * Math.min(...values);
}

const MOST = 24;  // runs whose learning is fetched
const OVER = ["decisions", "episodes", "updates", "seconds", "generations"];

// All metrics of learning, those of a group's runs as their mean with a band from the lowest to the highest.
function learned(state, source, asked) {
  const view = new View(OVER[0]), grid = metricsGrid(view, "Learning");
  const about = h("p", { class: "hint", text: "The mean over the runs of a group, with a band from the lowest to the highest, as far as all of them have come." });
  grid.tools.prepend(...viewTools(view), picker("Over", OVER, 0, (k) => view.set({ over: OVER[k] })));
  grid.node.querySelector(".hint").after(about);
  grid.node.hidden = true;
  const ids = source.live && asked.runs.split(",").length <= MOST ? asked.runs.split(",") : [];
  let known = [];
  view.followers.add(() => grid.set(averaged()));

  function averaged() {
    return state.data.groups.flatMap((group) => {
      const runs = known.filter(({ name }) => runsOf(group).some((run) => run.name === name)), names = [...new Set(runs.flatMap(({ learners }) => learners.map((one) => one.learner)))];
      return names.map((learner) => average(names.length > 1 ? `${group.name}: ${learner}` : group.name, runs.flatMap((run) => run.learners.filter((one) => one.learner === learner)), view.over));
    });
  }

  async function load() {
    const { runs } = await source.get("runs"), wanted = runs.filter((run) => ids.includes(run.id));
    const loaded = await Promise.allSettled(wanted.map(async ({ id, name }) => ({ name, learners: (await source.get(`runs/${id}/learning`)).learners })));
    known = loaded.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
    if (known.some(({ learners }) => learners.length)) grid.set(averaged());
  }
  return { node: grid.node, close: () => grid.close(), draw: () => (ids.length ? load().catch(() => {}) : undefined) };
}

function average(name, learners, over) {
  const all = learners.map((one) => ({ ...one.metrics, return: one.mean })), names = ["return", ...new Set(all.flatMap((metrics) => Object.keys(metrics)))];
  const bands = Object.fromEntries(names.map((metric) => [metric, banded(learners.flatMap((one, k) => (all[k][metric] ? [{ x: one.over[over], values: all[k][metric] }] : [])))]));
  const several = learners.length > 1;
  const edges = ({ x, low, high }) => (several ? { x, low, high } : { x });
  return { learner: name, over: {}, metrics: Object.fromEntries(names.map((metric) => [metric, bands[metric].mean])), bands: Object.fromEntries(names.map((metric) => [metric, edges(bands[metric])])) };
}

function profiles(state) {
  const { node, hint, body } = card("Performance profile");
  let chart = null;
  return {
    node,
    close: () => chart?.destroy(),
    draw() {
      const { data } = state;
      node.hidden = data.thresholds.length < 2 || lone(data);
      if (node.hidden) return;
      write(hint, `The share of runs that are ${data.lower_is_better ? "below" : "above"} each value, with its 95% interval (a group with n = 1 has none): higher is better everywhere.`);
      const series = data.groups.map((group, k) => band(group.name, data.thresholds, group.profile, () => colourOf(data, k)));
      const shown = { xTitle: plain(data), yTitle: "share of runs", yRange: [0, 1.02], format: (v) => percent(v), logX: data.thresholds[0] > 0 && last(data.thresholds) > 100 * data.thresholds[0], x: data.thresholds, series: series.map(({ x, ...one }) => one) };
      if (chart) chart.set(shown);
      else chart = lines(body, shown);
    },
  };
}

function improvement(state) {
  const { node, body } = card("Probability of improvement", { hint: "How probable it is that a run of the first is better than a run of the second, with its 95% interval; of groups of several runs. At one half neither is." });
  return {
    node,
    draw() {
      const { data } = state;
      const pairs = data.improvement.filter((pair) => place(data, pair.better) < place(data, pair.than));
      node.hidden = !pairs.length;
      const rows = pairs.map((pair) => ({ ...pair, label: `${pair.better} over ${pair.than}`, colour: `var(--p${place(data, pair.better) % 8})` }));
      if (rows.length) intervals(body, { rows, title: "probability", range: [-0.02, 1.02], mark: 0.5, format: (v) => v.toFixed(2) });
    },
  };
}

function all(state) {
  const { node, body } = card("Runs");
  let grid = null;
  const rows = () => state.data.groups.flatMap((group) => group.runs.map((run) => ({ ...run, group: group.name })));
  return {
    node,
    draw() {
      if (grid) return grid.set(rows());
      const { data } = state;
      const changed = data.groups.some((group) => group.runs.some((run) => run.changes.length));
      const axes = data.axes.filter((axis) => data.groups.some((group) => group.runs.some((run) => run.spent[axis.name])));
      grid = table(body, {
        label: "Runs", rows: rows(), limit: 50, id: (run) => `${run.group} ${run.name}`,
        columns: [
          { key: "group", title: "group", text: true }, { key: "name", title: "run", text: true },
          { key: "state", title: "state", text: true, format: (text, run) => h("span", { class: run.counted ? null : "faint", text: run.why ? `${text}: ${run.why}` : text }) },
          { key: "value", title: plain(data), format: (value, run) => (run.counted ? number(value) : "left out") },
          ...axes.map((axis) => ({ key: axis.name, title: axis.name, value: (run) => run.spent[axis.name] ?? null })),
          ...(changed ? [{ key: "changes", title: "of its own", text: true, value: (run) => run.changes.join(" ") }] : []),
        ],
      });
      return undefined;
    },
  };
}

// ------------------------------------------------------------------------------------------------------------ intervals

// Figures with their intervals, one row each: dots, a diamond, whiskers, over one common axis.
// rows: [{ label, value, low?, high?, dots?: [{ value, label }], colour (CSS), hint? }]; range?: [low, high]; ends?: [low, high] that values can have, null where
// there is no end; mark?: a place to draw a line at; format?(value). Returns { set(rows) }.
function intervals(node, { rows, title = "", range = null, ends = [null, null], mark = null, format = number }) {
  const list = h("ul", { class: "intervals", "aria-label": title });
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  clear(node).append(list, axis);

  function set(now) {
    const all = now.flatMap((row) => [row.value, row.low, row.high, ...(row.dots ?? []).map((dot) => dot.value)]).filter((v) => v !== null && v !== undefined);
    const [low, high] = range ?? spread(all, ends);
    const at = (value) => `${(100 * (value - low)) / (high - low)}%`;
    const places = ticks(low, high, 5);
    const grid = () => [...places.map((place) => h("i", { class: "line", style: { left: at(place) } })), mark === null ? null : h("i", { class: "line strong", style: { left: at(mark) } })];
    clear(list).append(...now.map((row) => {
      const said = row.value === null ? "–" : row.low === null || row.low === undefined ? format(row.value) : `${format(row.value)} (${format(row.low)} to ${format(row.high)})`;
      const field = h("div", { class: "field-of", "aria-hidden": "true" }, grid(),
        (row.dots ?? []).filter((dot) => dot.value !== null).map((dot) => h("i", { class: "dot", title: `${dot.label}: ${format(dot.value)}`, style: { left: at(dot.value), "--colour": row.colour } })),
        row.low === null || row.low === undefined ? null : h("i", { class: "whisker", style: { left: at(row.low), width: `calc(${at(row.high)} - ${at(row.low)})`, "--colour": row.colour } }),
        row.value === null ? null : h("i", { class: "diamond", style: { left: at(row.value), "--colour": row.colour } }));
      return h("li", { title: row.hint }, h("span", { class: "of", text: row.label }), field, h("span", { class: "is", text: said }));
    }));
    clear(axis).append(h("span", { class: "of" }), h("div", { class: "field-of" }, places.map((place) => h("span", { style: { left: at(place) }, text: short(place) }))), h("span", { class: "is", text: title }));
  }
  set(rows);
  return { set };
}

const ROOM = 0.06;  // of the axis, beside what it shows
const SPAN = 0.2;  // of the largest value: what an axis spans at least

// The axis of some values: to the measure's own ends, where it has any, and never so short that a small difference fills it.
export function spread(values, [least, most] = [null, null]) {
  const all = [...values, least, most].filter((value) => value !== null);
  if (!all.length) return [0, 1];
  const first = Math.min(...all), final = Math.max(...all), size = Math.max(Math.abs(first), Math.abs(final)) || 1;
  const lack = Math.max(0, SPAN * size - (final - first)) / 2, low = first - lack, high = final + lack, room = (high - low) * ROOM;
  const near = low >= 0 && low < 0.5 * high;  // zero is worth showing where it is near
  return [least ?? (near ? 0 : low - room), most ?? high + room];
}
