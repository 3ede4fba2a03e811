// Runs and experiments side by side: their figures with intervals, their curves, their profiles, and who is likely better.

import { card, clear, empty, h, picker, sentence, write } from "./dom.js";
import { ticks } from "./axes.js";
import { colour, lines, number, percent, short, table } from "./charts.js";

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
  const parts = [leftOut(state), figures(state), settings(state), efficiency(state), profiles(state), improvement(state), all(state)];
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
  const { node, body } = card("Left out", { hint: "The figures of these runs count nowhere on this page." });
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

function figures(state) {
  const { node, body } = card("Figures", { hint: "After the last generation: each run as a dot, the interquartile mean as a diamond with its 95% interval (a bootstrap over runs, stratified by environment)." });
  const title = node.querySelector("h2");
  return {
    node,
    draw() {
      const { data } = state;
      write(title, data.title);
      const rows = data.groups.map((group, k) => ({
        label: group.name, ...group.iqm, colour: `var(--p${k % 8})`, told: `mean ${number(group.mean.value)}, best ${number(group.best)}`,
        dots: data.normalised ? [] : group.runs.filter((run) => run.counted).map((run) => ({ value: run.value, label: run.name })),
      }));
      const published = data.baselines.map((one) => ({ label: one.name, value: one.mean, low: one.mean - one.spread, high: one.mean + one.spread, colour: "var(--soft)", told: "published" }));
      intervals(body, { rows: [...rows, ...published], title: data.lower_is_better ? "lower is better" : "higher is better" });
    },
  };
}

function settings(state) {
  const { node, body } = card("Settings in which they differ", { hint: "Of the scenarios as they were run. A part of another kind is named alone; its options are its own." });
  const told = (value) => (value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  let grid = null;
  return {
    node,
    draw() {
      const { data } = state;
      node.hidden = !data.settings.length;
      if (node.hidden) return;
      if (grid) {
        grid.set(data.settings);
        return;
      }
      grid = table(body, {
        label: "Settings in which they differ", rows: data.settings, limit: 50, id: (row) => row.name,
        columns: [{ key: "name", title: "setting", text: true }, ...data.groups.map((group) => ({ key: group.name, title: group.name, text: true, value: (row) => row.values[group.name].map(told).join(", ") }))],
      });
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
    write(hint, `The interquartile mean over the runs of the ${title} with its 95% interval, after so many ${axis.title}. Each curve ends where its shortest run does.`);
    const curves = data.groups.flatMap((group, k) => (group.curves[axis.name] ? [band(group.name, group.curves[axis.name].x, group.curves[axis.name].iqm, () => colourOf(data, k))] : []));
    const [from, to] = [Math.min(...curves.map((one) => one.x[0])), Math.max(...curves.map((one) => last(one.x)))];
    const published = data.baselines.map((one) => ({ name: one.name, x: [from, to], values: [one.mean, one.mean], low: [one.mean - one.spread, one.mean - one.spread], high: [one.mean + one.spread, one.mean + one.spread], dashed: true, colour: () => colour(7) }));
    const shown = { xTitle: axis.title, yTitle: title, log: state.log, whole: axis.name !== "seconds", height: 340, series: [...curves, ...published] };
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

function profiles(state) {
  const { node, hint, body } = card("Performance profile");
  let chart = null;
  return {
    node,
    close: () => chart?.destroy(),
    draw() {
      const { data } = state;
      node.hidden = data.thresholds.length < 2;
      if (node.hidden) return;
      write(hint, `The share of runs that are ${data.lower_is_better ? "below" : "above"} each value, with its 95% interval: higher is better everywhere.`);
      const series = data.groups.map((group, k) => band(group.name, data.thresholds, group.profile, () => colourOf(data, k)));
      const shown = { xTitle: plain(data), yTitle: "share of runs", yRange: [0, 1.02], format: (v) => percent(v), logX: data.thresholds[0] > 0 && last(data.thresholds) > 100 * data.thresholds[0], x: data.thresholds, series: series.map(({ x, ...one }) => one) };
      if (chart) chart.set(shown);
      else chart = lines(body, shown);
    },
  };
}

function improvement(state) {
  const { node, body } = card("Probability of improvement", { hint: "How probable it is that a run of the first is better than a run of the second, with its 95% interval. At one half neither is." });
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
// rows: [{ label, value, low?, high?, dots?: [{ value, label }], colour (CSS), told? }]; range?: [low, high]; mark?: a place to draw a line at;
// format?(value). Returns { set(rows) }.
function intervals(node, { rows, title = "", range = null, mark = null, format = number }) {
  const list = h("ul", { class: "intervals", "aria-label": title });
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  clear(node).append(list, axis);

  function set(now) {
    const all = now.flatMap((row) => [row.value, row.low, row.high, ...(row.dots ?? []).map((dot) => dot.value)]).filter((v) => v !== null && v !== undefined);
    const [low, high] = range ?? spread(all);
    const at = (value) => `${(100 * (value - low)) / (high - low)}%`;
    const places = ticks(low, high, 5);
    const grid = () => [...places.map((place) => h("i", { class: "line", style: { left: at(place) } })), mark === null ? null : h("i", { class: "line strong", style: { left: at(mark) } })];
    clear(list).append(...now.map((row) => {
      const said = row.value === null ? "–" : row.low === null || row.low === undefined ? format(row.value) : `${format(row.value)} (${format(row.low)} to ${format(row.high)})`;
      const field = h("div", { class: "field-of", "aria-hidden": "true" }, grid(),
        (row.dots ?? []).filter((dot) => dot.value !== null).map((dot) => h("i", { class: "dot", title: `${dot.label}: ${format(dot.value)}`, style: { left: at(dot.value), "--colour": row.colour } })),
        row.low === null || row.low === undefined ? null : h("i", { class: "whisker", style: { left: at(row.low), width: `calc(${at(row.high)} - ${at(row.low)})`, "--colour": row.colour } }),
        row.value === null ? null : h("i", { class: "diamond", style: { left: at(row.value), "--colour": row.colour } }));
      return h("li", { title: row.told }, h("span", { class: "of", text: row.label }), field, h("span", { class: "is", text: said }));
    }));
    clear(axis).append(h("span", { class: "of" }), h("div", { class: "field-of" }, places.map((place) => h("span", { style: { left: at(place) }, text: short(place) }))), h("span", { class: "is", text: title }));
  }
  set(rows);
  return { set };
}

function spread(values) {
  if (!values.length) return [0, 1];
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < 0.5 * high ? 0 : low - room, high + room];
}
