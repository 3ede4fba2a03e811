"use strict";
// The page of a comparison: its charts and its table.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const known = data.axes.filter((axis) => data.groups.some((group) => group.curves[axis.name]));
const state = { axis: 0, logarithmic: false };
const plain = data.title.replace(/ \(.*/, "");
const MORE = ["#8a6d3b", "#3b7a78", "#a64d79", "#5f6b2e", "#40618f", "#7a4b2a"];
const colour = (k) => (k < 4 ? playerColour(k) : MORE[(k - 4) % MORE.length]);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function faded(hex, alpha) {
  const parts = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  return `rgba(${parts.join(",")},${alpha})`;
}

const latest = (curve) => (curve ? curve.x[curve.x.length - 1] : 0);

// Over less than a decade a logarithmic axis has no room for ticks.
function decades() {
  const values = data.groups.flatMap((group) => Object.values(group.curves).flatMap((curve) => curve.iqm.map((e) => e.value))).filter((v) => v > 0);
  return values.length > 0 && Math.max(...values) > 10 * Math.min(...values);
}

function told(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(2).replaceAll("-", "−");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 }).replace("-", "−");
}

function picker(element, labels, chosen, choose) {
  element.replaceChildren(...(labels.length < 2 ? [] : labels.map((label, k) => {
    const button = make("button", label);
    button.type = "button";
    button.setAttribute("aria-pressed", String(k === chosen));
    button.addEventListener("click", () => { choose(k); });
    return button;
  })));
}

function header() {
  const names = data.groups.map((group) => group.name);
  byId("name").textContent = names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0];
  const unfinished = data.groups.filter((group) => group.unfinished).map((group) => group.name);
  const so = unfinished.length ? ` No run of ${unfinished.join(", ")} has come to its end: what they have so far is compared.` : "";
  byId("lead").textContent = `On ${data.environments.join(", ")}. ${data.normalised ? "Scores are normalised: 0 is the worst run of all on an environment, 1 the best." : ""}${so}`;
  byId("figures-title").textContent = data.title;
  const out = data.groups.flatMap((group) => group.runs.filter((run) => !run.counted).map((run) => ({ group, run })));
  byId("notes").hidden = !out.length;
  byId("note-list").replaceChildren(...out.map(({ group, run }) => make("li", `${group.name}: ${run.name}: ${run.state}${run.why ? `, ${run.why}` : ""}`)));
}

// One horizontal line per row: dots, a diamond and its interval.
function rowsLayout(element, labels, extra) {
  element.style.height = `${Math.max(140, 90 + 38 * labels.length)}px`;
  return {
    showlegend: false, hovermode: "closest", margin: { l: 12, r: 12, t: 12, b: 44 },
    yaxis: { type: "category", autorange: "reversed", showgrid: false, ticks: "", categoryorder: "array", categoryarray: labels },
    ...extra,
  };
}

function interval(estimate) {
  if (estimate.low === null) return {};
  return { error_x: { type: "data", symmetric: false, array: [estimate.high - estimate.value], arrayminus: [estimate.value - estimate.low], thickness: 2, width: 6 } };
}

function figures() {
  const labels = [...data.groups.map((group) => group.name), ...data.baselines.map((b) => b.name)];
  const traces = [];
  data.groups.forEach((group, k) => {
    const runs = group.runs.filter((run) => run.counted);
    if (!data.normalised) traces.push({ x: runs.map((run) => run.value), y: runs.map(() => group.name), text: runs.map((run) => run.name), type: "scatter", mode: "markers", marker: { color: faded(colour(k), 0.45), size: 9 }, hovertemplate: "%{text}: %{x:.4g}<extra></extra>" });
    traces.push({ x: [group.iqm.value], y: [group.name], ...interval(group.iqm), type: "scatter", mode: "markers", marker: { color: colour(k), size: 12, symbol: "diamond" }, hovertemplate: `interquartile mean %{x:.4g}<br>mean ${told(group.mean.value)}<extra>${group.name}</extra>` });
  });
  for (const b of data.baselines) traces.push({ x: [b.mean], y: [b.name], error_x: { type: "data", array: [b.spread], thickness: 2, width: 6 }, type: "scatter", mode: "markers", marker: { color: css("--soft"), size: 11, symbol: "line-ns-open" }, hovertemplate: `published: ${told(b.mean)} ± ${told(b.spread)}<extra>${b.name}</extra>` });
  draw(byId("figures"), traces, rowsLayout(byId("figures"), labels, { xaxis: { title: data.title } }));
}

function band(x, estimates, k, name) {
  const shown = estimates.some((e) => e.low !== null);
  const few = x.length < 3;
  const line = { x, y: estimates.map((e) => e.value), name, type: "scatter", mode: few ? "lines+markers" : "lines", line: { color: colour(k), width: 2.25 }, legendgroup: name, hovertemplate: "%{y:.4g}" };
  if (!shown) return [line];
  const edge = { type: "scatter", mode: "lines", line: { width: 0 }, showlegend: false, legendgroup: name, hoverinfo: "skip" };
  return [
    { ...edge, x, y: estimates.map((e) => e.low) },
    { ...edge, x, y: estimates.map((e) => e.high), fill: "tonexty", fillcolor: faded(colour(k), 0.18) },
    line,
  ];
}

function curves() {
  byId("curves").hidden = !known.length;
  if (!known.length) return;
  const axis = known[state.axis];
  picker(byId("axis"), known.map((a) => a.name), state.axis, (k) => { state.axis = k; curves(); });
  picker(byId("scale"), ["log", "linear"], state.logarithmic ? 0 : 1, (k) => { state.logarithmic = k === 0; curves(); });
  byId("curves-hint").textContent = `The interquartile mean over the runs of the ${axis.name === "generations" ? plain : data.curve_title} with its 95% interval, after so many ${axis.title}. Each curve ends where its shortest run does.`;
  const traces = data.groups.flatMap((group, k) => (group.curves[axis.name] ? band(group.curves[axis.name].x, group.curves[axis.name].iqm, k, group.name) : []));
  const shapes = data.baselines.flatMap((b) => [
    { type: "rect", xref: "paper", x0: 0, x1: 1, y0: b.mean - b.spread, y1: b.mean + b.spread, fillcolor: faded(css("--soft"), 0.15), line: { width: 0 }, layer: "below" },
    { type: "line", xref: "paper", x0: 0, x1: 1, y0: b.mean, y1: b.mean, line: { color: css("--soft"), width: 1.5, dash: "dash" } },
  ]);
  const low = (y) => (state.logarithmic ? Math.log10(y) : y);
  const annotations = data.baselines.map((b) => ({ xref: "paper", x: 1, xanchor: "right", y: low(b.mean), yanchor: "bottom", text: b.name, showarrow: false, font: { size: 12, color: css("--soft") } }));
  const values = data.groups.map((group) => (group.curves[axis.name] ? group.curves[axis.name].iqm.map((e) => e.value) : []));
  draw(byId("curve-chart"), traces, {
    xaxis: { title: axis.title, rangemode: "tozero", ...(axis.name === "generations" ? wholeTicks([0, Math.max(...data.groups.map((g) => latest(g.curves.generations)))]) : {}) }, showlegend: true, hovermode: "x unified", shapes, annotations,
    yaxis: { title: axis.name === "generations" ? plain : data.curve_title, type: state.logarithmic ? "log" : "linear", ...(state.logarithmic ? logTicks(values) : {}) },
  });
}

function profiles() {
  const few = data.thresholds.length < 2;
  byId("profiles").hidden = few;
  if (few) return;
  byId("profile-hint").textContent = `The share of runs that are ${data.lower_is_better ? "below" : "above"} each value, with its 95% interval: higher is better everywhere.`;
  const traces = data.groups.flatMap((group, k) => band(data.thresholds, group.profile, k, group.name));
  const ratio = data.thresholds[0] > 0 && data.thresholds[data.thresholds.length - 1] / data.thresholds[0] > 100;
  draw(byId("profile-chart"), traces, {
    xaxis: { title: plain, type: ratio ? "log" : "linear", ...(ratio ? logTicks([data.thresholds]) : {}) }, yaxis: { range: [0, 1.02], tickformat: ".0%" }, showlegend: data.groups.length > 1, hovermode: "x unified",
  });
}

function improvement() {
  const place = Object.fromEntries(data.groups.map((group, k) => [group.name, k]));
  const pairs = data.improvement.filter((p) => place[p.better] < place[p.than]);
  byId("improvement").hidden = !pairs.length;
  if (!pairs.length) return;
  const labels = pairs.map((p) => `${p.better} over ${p.than}`);
  const traces = pairs.map((p, k) => ({ x: [p.value], y: [labels[k]], ...interval(p), type: "scatter", mode: "markers", marker: { color: colour(place[p.better]), size: 12, symbol: "diamond" }, hovertemplate: "%{x:.2f}<extra></extra>" }));
  const shapes = [{ type: "line", yref: "paper", x0: 0.5, x1: 0.5, y0: 0, y1: 1, line: { color: css("--faint"), width: 1, dash: "dot" } }];
  draw(byId("improvement-chart"), traces, rowsLayout(byId("improvement-chart"), labels, { xaxis: { range: [-0.02, 1.02], title: "probability" }, shapes }));
}

function runs() {
  const changed = data.groups.some((group) => group.runs.some((run) => run.changes.length));
  const axes = data.axes.filter((axis) => data.groups.some((group) => group.runs.some((run) => run.spent[axis.name])));
  const head = make("tr");
  head.append(...["group", "run", "state"].map((text) => make("th", text, "text")), make("th", plain), ...axes.map((axis) => make("th", axis.name)), ...(changed ? [make("th", "of its own", "text")] : []));
  const body = make("tbody");
  for (const group of data.groups) for (const run of group.runs) {
    const row = make("tr");
    const value = make("td", run.counted ? told(run.value) : "left out");
    row.append(make("td", group.name, "text"), make("td", run.name, "text"), make("td", run.why ? `${run.state}: ${run.why}` : run.state, "text"), value);
    row.append(...axes.map((axis) => make("td", told(run.spent[axis.name]))), ...(changed ? [make("td", run.changes.join(" "), "text")] : []));
    if (!run.counted) row.querySelectorAll("td").forEach((cell) => cell.classList.add("faint"));
    body.append(row);
  }
  const top = make("thead");
  top.append(head);
  byId("runs").replaceChildren(top, body);
}

function drawAll() { figures(); curves(); profiles(); improvement(); }

state.logarithmic = data.lower_is_better && decades();
if (data.curve_title !== plain) state.axis = Math.max(0, known.findIndex((axis) => axis.name === "decisions"));  // where the learning curve is
header();
runs();
drawAll();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
document.documentElement.dataset.ready = "yes";
