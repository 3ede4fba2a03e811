// How the learners learn, where the time goes, and who is alive.

import { card, clear, empty, h, picker, time, write } from "./dom.js";
import { cards } from "./panels.js";
import { colour, css, lines, number, percent, span, table, whole } from "./charts.js";
import { metricsGrid } from "./metrics.js";
import { View, viewTools } from "./view.js";

const OVER = ["decisions", "episodes", "updates", "seconds"];

export async function show(root, { source, params, query, go }) {
  const asked = { population: query.get("population"), policy: query.get("policy") };
  root.append(h("h2", { class: "unseen", text: "Learning" }));
  const parts = [
    { panel: "learning", params: asked, ...curves({ run: params.run, asked, go, live: source.live }) },
    { panel: "throughput", ...throughput() },
    { panel: "parts", ...signs(source.live) },
  ];
  const page = await cards(root, { source, run: params.run, parts });
  const stop = source.onstatus(params.run, (status) => parts[0].now(status));
  return { update: page.update, close() { stop(); page.close(); } };
}

// ------------------------------------------------------------------------------------------------------------ curves

// The cards of returns and, if wanted, of metrics. asked: of one policy, or of all. live: with a field to choose one.
export function curves({ run, asked, go, live, metrics = true }) {
  const returns = card(asked.policy ? `Learning of ${asked.policy}` : "Returns while learning", { level: 2 });
  const view = new View(OVER[0]), grid = metrics ? metricsGrid(view) : null;
  const state = { data: null };
  const over = picker("Over", OVER, 0, (k) => view.set({ over: OVER[k] })), tools = h("div", { class: "tools" }, viewTools(view), over);
  const name = h("input", { class: "field", type: "search", placeholder: "One policy, as 0/0-3", "aria-label": "One policy's own tasks: population/policy", value: asked.policy ? `${asked.population}/${asked.policy}` : "" });
  const one = h("form", { class: "tools", on: { submit: (event) => { event.preventDefault(); choose(name.value.trim()); } } }, name, h("button", { class: "more", text: "Show" }));
  returns.head.append(h("div", { class: "tools" }, live ? one : null), tools);
  const place = h("div"), under_way = h("p", { class: "hint" });
  returns.hint.after(under_way);
  let chart = null;
  const drop = () => { chart?.destroy(); chart = null; };
  view.followers.add(() => { if (state.data) draw(); });

  function choose(text) {
    const [population, ...rest] = text.split("/");
    go(text ? `/run/${run}/learning?population=${encodeURIComponent(population)}&policy=${encodeURIComponent(rest.join("/"))}` : `/run/${run}/learning`);
  }

  function draw() {
    const { learners, learners_in_all: all } = state.data;
    tools.hidden = !learners.length;
    returns.node.hidden = !metrics && !learners.length;  // where it only leads
    if (!learners.length) {
      drop();
      write(returns.hint, "");
      clear(returns.body).append(empty(asked.policy ? "Nothing is known of how this policy learned: it was computed, given, or is no policy of this run." : "No learner has reported yet: curves begin with the first task of training. Where best responses are computed there are none."));
      return;
    }
    const busy = learners.filter((learner) => learner.in_flight).map((learner) => learner.learner);
    const spread = median(learners.flatMap((learner) => learner.spread));
    const means = learners.flatMap((learner) => learner.mean).filter((v) => v !== null);
    const banded = learners.length <= 2 && spread !== null && spread < Math.max(...means) - Math.min(...means);  // luck would hide what is learned
    const how = banded ? " (return, with the standard deviation between episodes)" : spread === null ? "" : ` (return, ± ${number(spread, 2)} between episodes)`;
    const left = all > learners.length ? ` These are the ${learners.length} learners of ${whole(all)} that have decided most.` : "";
    write(returns.hint, `Mean over the episodes of training${how}; tasks of a learner are joined.${left}${busy.length ? ` In training now: ${busy.join(", ")}.` : ""}`);
    const shown = returnsOf(banded);
    if (chart) return chart.set(shown);
    clear(returns.body).append(place);
    chart = lines(place, shown, view);
    return undefined;
  }

  function returnsOf(banded) {
    const { learners } = state.data;
    const series = learners.filter((learner) => view.match(learner.learner)).map((learner) => ({
      name: learner.learner, x: learner.over[view.over], values: learner.mean, colour: () => colour(learners.indexOf(learner), learners.length),
      ...(banded ? { low: edge(learner, -1), high: edge(learner, 1) } : {}),
    }));
    return { xTitle: view.over, yTitle: "return", series, height: 300 };
  }
  return {
    node: h("div", null, returns.node, grid?.node),
    close() { drop(); grid?.close(); },
    set(data) { state.data = data; draw(); grid?.set(data.learners); },
    // What is under way has its curve from its next checkpoint on; until then this tells of it. status: LiveStatus or null.
    now(status) {
      const share = status && status.fraction !== null ? `, ${percent(status.fraction)} done` : "";
      write(under_way, status && !asked.policy ? `Under way in generation ${whole(status.generation)}: ${status.doing}${share}.` : "");
    },
  };
}

const edge = (learner, sign) => learner.mean.map((mean, k) => (mean === null ? null : mean + sign * (learner.spread[k] ?? 0)));

function median(values) {
  const known = values.filter((v) => v !== null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
}

// ------------------------------------------------------------------------------------------------------------ throughput

function throughput() {
  const { node, hint, body } = card("Throughput");
  const places = { shares: h("div"), speed: h("div"), lag: h("div") };
  const list = h("dl"), what = h("details", { hidden: true }, h("summary", { text: "What these are" }), list);
  node.append(what);
  let charts = {};
  const close = () => { for (const chart of Object.values(charts)) chart.destroy(); charts = {}; };
  return {
    node, close,
    set(data) {
      const known = (values) => values?.some((v) => v !== null);
      const drawn = {};
      if (Object.values(data.shares).some(known)) drawn.shares = { x: data.seconds, xTitle: "seconds", yTitle: "share of the time", stacked: true, height: 240, series: Object.entries(data.shares).map(([name, values], k) => ({ name: name.replaceAll("_", " "), values, colour: () => (name === "rest" ? css("--line") : colour(k)) })) };
      if (known(data.steps_per_second)) drawn.speed = { x: data.seconds, xTitle: "seconds", yTitle: "steps per second", height: 240, series: [{ name: "steps per second", values: data.steps_per_second, colour: () => colour(1) }] };
      if (known(data.lag)) drawn.lag = { x: data.seconds, xTitle: "seconds", yTitle: "lag (versions)", height: 240, series: [{ name: "lag", values: data.lag, colour: () => colour(3) }] };
      const names = Object.keys(drawn);
      const lag = drawn.lag ? " Lag: how many versions older than the newest the weights were that acted." : "";
      write(hint, names.length ? `What the run's time went to, of what was measured, and how fast its environments moved on.${lag}` : "");
      const told = Object.entries(data.told ?? {});
      what.hidden = !drawn.shares || !told.length;
      if (list.childElementCount !== told.length) clear(list).append(...told.map(([name, text]) => h("div", null, h("dt", { text: name.replaceAll("_", " ") }), h("dd", { text }))));
      if (!names.length) {
        close();
        return void clear(body).append(empty("Nothing has been measured yet: this fills while a learner trains."));
      }
      if (names.join() !== Object.keys(charts).join()) {
        close();
        clear(body).append(h("div", { class: "pair" }, names.map((name) => places[name])));
        charts = Object.fromEntries(names.map((name) => [name, lines(places[name], drawn[name])]));
      } else for (const name of names) charts[name].set(drawn[name]);
    },
  };
}

// ------------------------------------------------------------------------------------------------------------ parts

const COLUMNS = [
  { key: "name", title: "part", text: true },
  { key: "kind", title: "kind", text: true },
  { key: "state", title: "state", text: true, format: (state) => h("span", { class: `pill ${state}`, text: state }) },
  { key: "seen", title: "last sign of life", format: (seen) => (seen === null ? "–" : ago(seen)) },
  { key: "restarts", title: "restarts", format: whole },
  { key: "node", title: "node", text: true },
  { key: "pid", title: "process", format: (pid) => (pid === null ? "–" : String(pid)) },
];

function signs(live) {
  const { node, body } = card("Parts");
  const place = h("div"), deaths = h("ul", { class: "notes" }), title = h("h3", { text: "Deaths and replacements" });
  let grid = null, clock = null, parts = [];
  body.append(place, title, deaths);
  return {
    node,
    close: () => clearInterval(clock),
    set(data) {
      ({ parts } = data);
      node.hidden = !live && !parts.length && !data.deaths.length;
      if (!parts.length) {
        grid = null;
        clear(place).append(empty("No part tells of itself now: the driver, workers, servers and trainers do while the run goes on."));
      } else if (grid) grid.set(parts);
      else grid = table(place, { label: "Parts", rows: parts, columns: COLUMNS, limit: 50, id: (part) => `${part.kind} ${part.name}` });
      clock ??= setInterval(() => grid?.set(parts), 1000);
      title.hidden = !data.deaths.length;
      clear(deaths).append(...data.deaths.slice(-100).reverse().map((death) => h("li", { class: "warning" }, time(death.time), h("span", { text: death.text }))));
    },
  };
}

const ago = (seen) => `${span(Math.max(0, Math.round(Date.now() / 1000 - seen)))} ago`;
