"use strict";
// The page around the charts.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const state = { logarithmic: true, over: 0, metric: 0, map: 0, ranking: 0, statistics: 0, sort: null, all: false };
const FEW = 25;

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function whole(value) { return value.toLocaleString("en-US").replaceAll(",", "\u2009"); }

function span(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
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

function empty(element, text) {
  element.className = "empty";
  element.replaceChildren(make("span", text));
}

function header() {
  const { info, summary } = data;
  byId("kicker").textContent = "Ludus report";
  byId("name").textContent = info.name;
  byId("lead").textContent = summary && data.state !== "running" ? `${info.scenario} on ${info.env}. ${sentence(summary.stopped_by)}` : `${info.scenario} on ${info.env}.`;
  byId("state").textContent = data.state;
  byId("state").classList.add(data.state);
}

function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".") : "";
}

function latest(values) { return values.length ? values[values.length - 1] : null; }

function tiles() {
  const { convergence, info, rankings } = data;
  const two = info.population.length === 2;
  const nash = latest(convergence.nash_conv);
  const best = convergence.nash_conv.filter((v) => v !== null);
  const under = nash === null ? "not computed" : two ? `exploitability ${show(nash / 2)}` : `best ${show(Math.min(...best))}`;
  const policies = rankings.map((r) => r.rows.length);
  const alone = info.population.length === 1;
  const means = alone ? (rankings[0]?.rows ?? []).map((r) => r.mean).filter((v) => v !== null) : [];
  const first = alone ? ["Return", show(means.length ? Math.max(...means) : null, 1), "of the best policy"] : [convergence.exact || nash === null ? "NashConv" : "NashConv, at least", show(nash), under];
  const entries = [
    first,
    ["Generations", latest(convergence.generation) === null ? "0" : whole(convergence.generation.length ? latest(convergence.generation) : 0), info.generations === null ? "no limit set" : `of ${whole(info.generations)}`],
    ["Policies", whole(policies.reduce((a, b) => a + b, 0)), policies.length > 1 ? policies.map(whole).join(" + ") : "one population"],
    ["Episodes", whole(latest(convergence.episodes) ?? 0), "of training"],
    ["Wall time", span(latest(convergence.seconds) ?? 0), "all sessions"],
  ];
  byId("tiles").replaceChildren(...entries.map(([label, value, small]) => {
    const tile = make("div", null, "tile");
    tile.append(make("div", label, "label"), make("div", value, "value"), make("div", small, "under"));
    return tile;
  }));
}

function convergence() {
  const { convergence, info } = data;
  byId("convergence").hidden = info.population.length < 2;  // nobody to exploit it
  if (!convergence.generation.length) return nothing("No generation has finished yet.");
  if (!convergence.nash_conv.length) return nothing("NashConv was not computed in this run: that needs a game small enough to be enumerated, and evaluation.exploitability not off.");
  byId("convergence-hint").textContent = (convergence.exact ? "" : "A lower bound, from approximate best responses. ") + "The sum of what each player could gain by a best response to the meta-strategies: 0 at an equilibrium.";
  picker(byId("scale"), ["log", "linear"], state.logarithmic ? 0 : 1, (k) => { state.logarithmic = k === 0; convergenceCharts(); });
  return convergenceCharts();
}

function nothing(text) {
  byId("convergence-hint").textContent = "";
  byId("by-seconds").remove();
  empty(byId("by-generation"), text);
}

function convergenceCharts() {
  const { convergence } = data;
  for (const [k, button] of [...byId("scale").children].entries()) button.setAttribute("aria-pressed", String((k === 0) === state.logarithmic));
  drawConvergence(byId("by-generation"), convergence, convergence.generation, "generation", state.logarithmic);
  drawConvergence(byId("by-seconds"), convergence, convergence.seconds, "seconds", state.logarithmic);
}

const OVER = ["decisions", "episodes", "updates", "seconds"];

function learning() {
  const learners = data.learning;
  byId("learning").hidden = !learners.length;
  if (!learners.length) return;  // best responses were computed, or nothing has been learned yet
  const left = data.learners - learners.length;
  const several = left ? ` These are the ${learners.length} learners of ${whole(data.learners)} that have decided most.` : "";
  const spread = median(learners.flatMap((learner) => learner.spread));
  const means = learners.flatMap((learner) => learner.mean).filter((v) => v !== null);
  const banded = learners.length <= 2 && spread < Math.max(...means) - Math.min(...means);  // luck would hide what is learned
  const how = banded ? ", with their standard deviation" : spread === null ? "" : `, whose standard deviation is about ${show(spread, 2)}`;
  byId("learning-hint").textContent = `Left, the mean return of the episodes that learners were trained in${how}. A learner's tasks follow one another.${several}`;
  byId("learning-legend").replaceChildren(...(learners.length < 2 ? [] : learners.map((learner, k) => {
    const entry = make("span", learner.learner);
    entry.style.setProperty("--colour", learnerColour(k, learners.length));
    return entry;
  })));
  const metrics = [...new Set(learners.flatMap((learner) => Object.keys(learner.metrics)))];
  picker(byId("learning-over"), OVER, state.over, (k) => { state.over = k; learning(); });
  picker(byId("learning-picker"), metrics, state.metric, (k) => { state.metric = k; learning(); });
  drawLearning(byId("learning-return"), learners, OVER[state.over], "return", (learner) => learner.mean, banded);
  drawLearning(byId("learning-metric"), learners, OVER[state.over], metrics[state.metric], (learner) => learner.metrics[metrics[state.metric]], false);
}

function median(values) {
  const known = values.filter((v) => v !== null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
}

function strategies() {
  const place = byId("strategy-charts");
  if (!data.strategies.length) return empty(place, "No meta-strategy has been solved yet.");
  if (place.children.length !== data.strategies.length) place.replaceChildren(...data.strategies.map(() => make("div", null, "chart")));
  data.strategies.forEach((strategy, k) => drawStrategy(place.children[k], strategy));
}

function payoffs() {
  const chart = byId("payoff-chart");
  if (!data.heat_maps.length) return empty(chart, data.info.population.length < 2 ? "A single player has no payoff matrix." : "No payoffs have been recorded yet.");
  const map = data.heat_maps[state.map];
  const others = data.info.population.length > 2 ? " The other players mix by their last meta-strategy." : "";
  byId("payoff-hint").textContent = `Mean return of player ${map.of}, row against column.${others}`;
  const labels = data.heat_maps.map((m) => (data.info.population.length > 2 ? `${m.row_player} × ${m.column_player}: player ${m.of}` : `player ${m.of}`));
  picker(byId("payoff-picker"), labels, state.map, (k) => { state.map = k; payoffs(); });
  drawPayoffs(chart, map);
}

const COLUMNS = [
  { key: "policy", title: "policy", text: true }, { key: "probability", title: "probability" }, { key: "mean", title: "mean return" },
  { key: "rating", title: "Elo" }, { key: "generation", title: "generation" }, { key: "start", title: "started from", text: true },
];

function ranking() {
  const tables = data.rankings.filter((r) => r.rows.length);
  const table = byId("ranking-table");
  if (!tables.length) return empty(table.parentElement, "No policy has been added yet.");
  picker(byId("ranking-picker"), tables.map((r) => (r.players.length > 1 ? `players ${r.players.join(", ")}` : `player ${r.players[0]}`)), state.ranking, (k) => { state.ranking = k; ranking(); });
  const rows = tables[state.ranking].rows;
  const columns = COLUMNS.filter((c) => c.key !== "rating" || rows.some((r) => r.rating !== null));
  const sorted = state.sort ? sort(rows) : rows;
  const shown = state.all ? sorted : sorted.slice(0, FEW);
  const head = make("tr");
  head.append(make("th", ""), ...columns.map(heading));
  const most = Math.max(...rows.map((r) => r.probability), 1e-12);
  const body = make("tbody");
  body.append(...shown.map((row, k) => line(row, k, columns, most)));
  const top = make("thead");
  top.append(head);
  table.replaceChildren(top, body);
  byId("ranking-more").hidden = rows.length <= FEW || state.all;
  byId("ranking-more").textContent = `Show all ${whole(rows.length)}`;
}

function sort(rows) {
  const { key, down } = state.sort;
  const value = (row) => (row[key] === null ? -Infinity : row[key]);
  const order = (a, b) => (typeof value(a) === "string" ? value(a).localeCompare(value(b), "en", { numeric: true }) : value(a) - value(b) || 0);
  return [...rows].sort((a, b) => (down ? -order(a, b) : order(a, b)));
}

function heading(column) {
  const cell = make("th", null, column.text ? "text" : "");
  const button = make("button", column.title);
  button.type = "button";
  const current = state.sort ?? { key: "mean", down: true };
  if (current.key === column.key) cell.setAttribute("aria-sort", current.down ? "descending" : "ascending");
  button.addEventListener("click", () => {
    state.sort = { key: column.key, down: current.key === column.key ? !current.down : !column.text };
    ranking();
  });
  cell.append(button);
  return cell;
}

function line(row, rank, columns, most) {
  const element = make("tr");
  element.append(make("td", String(rank + 1), "rank"));
  for (const column of columns) {
    const value = row[column.key];
    const cell = make("td", null, column.text ? "text" : "");
    if (column.key === "probability") {
      const bar = make("span", null, "bar");
      const fill = make("i");
      fill.style.width = `${(100 * value) / most}%`;
      bar.append(fill);
      cell.append(bar, value === 0 ? "0" : value.toFixed(3));
      if (value < 5e-4) cell.classList.add("faint");
    } else if (column.key === "mean") cell.textContent = value === null ? "–" : value.toFixed(4).replace("-", "−");
    else if (column.key === "rating") cell.textContent = value === null ? "–" : value.toFixed(0).replace("-", "−");
    else cell.textContent = String(value);
    element.append(cell);
  }
  return element;
}

function statistics() {
  const tables = data.statistics.filter((t) => t.rows.length);
  byId("statistics").hidden = !tables.length;
  if (!tables.length) return;  // the environment counts nothing, or nothing has been played
  const { names, rows } = tables[state.statistics];
  picker(byId("statistics-picker"), tables.map((t) => (t.players.length > 1 ? `players ${t.players.join(", ")}` : `player ${t.players[0]}`)), state.statistics, (k) => { state.statistics = k; statistics(); });
  const head = make("tr");
  head.append(make("th", "policy", "text"), make("th", "episodes"), ...names.map((name) => make("th", name.replaceAll("_", " "))));
  const body = make("tbody");
  body.append(...rows.map((row) => {
    const element = make("tr");
    element.append(make("td", row.policy, "text"), make("td", whole(row.episodes)));
    row.means.forEach((mean, k) => {
      const cell = make("td", show(mean));
      cell.title = row.against.map(([others, means]) => `against ${others}: ${show(means[k])}`).join("\n");
      element.append(cell);
    });
    return element;
  }));
  const top = make("thead");
  top.append(head);
  byId("statistics-table").replaceChildren(top, body);
}

function facts() {
  const { info, summary } = data;
  const entries = [
    ["Scenario", info.scenario], ["Environment", info.env], ["Algorithm", info.algorithm], ["Players", String(info.population.length)],
    ["Seed", String(info.seed)], ["Ludus", info.version], ["State", data.state], ["Stopped by", summary ? summary.stopped_by : "–"],
  ];
  if (summary && summary.places.length) entries.push(["Learned on", summary.places.join("; ")]);
  byId("fact-list").replaceChildren(...entries.map(([term, text]) => {
    const entry = make("div");
    entry.append(make("dt", term), make("dd", text));
    return entry;
  }));
  byId("scenario").hidden = !info.text;
  byId("scenario-text").textContent = info.text;
  byId("notes").hidden = !data.notes.length;
  byId("note-list").replaceChildren(...data.notes.map((note) => {
    const item = make("li");
    item.append(make("time", note.time), note.text);
    return item;
  }));
}

function drawAll() { convergence(); learning(); strategies(); payoffs(); }

header();
tiles();
facts();
ranking();
statistics();
drawAll();
byId("ranking-more").addEventListener("click", () => { state.all = true; ranking(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (byId("by-seconds") || !data.convergence.generation.length) drawAll();
  else { learning(); strategies(); payoffs(); }
});
window.addEventListener("resize", () => { if (data.heat_maps.length) payoffs(); });  // other labels may fit
document.documentElement.dataset.ready = "yes";
