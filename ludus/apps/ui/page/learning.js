// How the learners learn, where the time goes, and who is alive.

import { card, clear, empty, h, picker, time, write } from "./dom.js";
import { cards } from "./panels.js";
import { lines, number, span, table, whole } from "./charts.js";
import { colour, css } from "./colours.js";
import { describe, doing, shares, speed, tails, withNewcomers } from "./live.js";
import { metricsGrid } from "./metrics.js";
import { View, viewTools } from "./view.js";

const DESCRIBED = 4;  // learners in training that have a line of their own
const OVER = ["decisions", "episodes", "updates", "seconds", "generations"];

export async function show(root, { source, params, query, go }) {
  const asked = { population: query.get("population"), policy: query.get("policy") };
  root.append(h("h2", { class: "unseen", text: "Learning" }));
  const parts = [
    { panel: "learning", params: asked, ...curves({ run: params.run, asked, go, live: source.live }) },
    { panel: "throughput", ...throughput() },
    { panel: "parts", ...signs(source.live) },
  ];
  const page = await cards(root, { source, run: params.run, parts });
  const stop = source.onstatus(params.run, (status) => { for (const { now } of parts) now?.(status); });
  return { update: page.update, close() { stop(); page.close(); } };
}

// ------------------------------------------------------------------------------------------------------------ curves

// The cards of returns and, if wanted, of metrics. asked: of one policy, or of all. live: with a field to choose one.
export function curves({ run, asked, go, live, metrics = true }) {
  const returns = card(asked.policy ? `Learning of ${asked.policy}` : "Returns while learning", { level: 2 });
  const view = new View(OVER[0]), grid = metrics ? metricsGrid(view) : null;
  const state = { data: null, status: null };
  const over = picker("Over", OVER, 0, (k) => view.set({ over: OVER[k] })), tools = h("div", { class: "tools" }, viewTools(view), over);
  const name = h("input", { class: "field", type: "search", placeholder: "One policy, as 0/0-3", "aria-label": "One policy's own tasks: population/policy", value: asked.policy ? `${asked.population}/${asked.policy}` : "" });
  const one = h("form", { class: "tools", on: { submit: (event) => { event.preventDefault(); choose(name.value.trim()); } } }, name, h("button", { class: "more", text: "Show" }));
  returns.head.append(h("div", { class: "tools" }, live ? one : null), tools);
  const place = h("div"), under_way = h("p", { class: "hint" }), points = h("ul", { class: "now", "aria-label": "Newest numbers" });
  returns.hint.after(under_way, points);
  let chart = null;
  const drop = () => { chart?.destroy(); chart = null; };
  view.followers.add(() => { if (state.data) draw(); });

  function choose(text) {
    const [population, ...rest] = text.split("/");
    go(text ? `/run/${run}/learning?population=${encodeURIComponent(population)}&policy=${encodeURIComponent(rest.join("/"))}` : `/run/${run}/learning`);
  }

  // The learners, those without a stored point included, and the provisional ends of their curves.
  function joined() {
    const ends = state.status ? tails(run, state.data.learners, asked.policy ? asked : null) : {};
    return { learners: withNewcomers(state.data.learners, ends), ends };
  }

  function draw() {
    const { learners, ends } = joined(), all = Math.max(state.data.learners_in_all, learners.length);
    tools.hidden = !learners.length;
    returns.node.hidden = !metrics && !learners.length;  // where it only leads
    if (!learners.length) {
      drop();
      write(returns.hint, "");
      clear(returns.body).append(empty(asked.policy ? "Nothing is known of how this policy learned: it was computed, given, or is no policy of this run." : "No learner has reported yet: curves begin with the first task of training. Computed best responses have none."));
      return;
    }
    const spread = median(learners.flatMap((learner) => learner.spread));
    const means = learners.flatMap((learner) => learner.mean).filter((v) => v !== null);
    const banded = learners.length <= 2 && spread !== null && spread < Math.max(...means) - Math.min(...means);  // a wider band would hide the curve
    const how = banded ? " (return, with the standard deviation between episodes)" : spread === null ? "" : ` (return, ± ${number(spread, 2)} between episodes)`;
    const left = all > learners.length ? ` These are the ${learners.length} learners of ${whole(all)} that have decided most.` : "";
    write(returns.hint, `Mean over the episodes of training${how}; tasks of a learner are joined.${left}${learners.some(({ learner }) => ends[learner]) ? " Dashed: provisional points since the last checkpoint, over the newest 100 episodes." : ""}`);
    const shown = returnsOf(learners, ends, banded);
    if (chart) return chart.set(shown);
    clear(returns.body).append(place);
    chart = lines(place, shown, view);
    return undefined;
  }

  function update() {
    draw();
    const { learners, ends } = joined();
    grid?.set(learners, ends);
  }

  function returnsOf(learners, ends, banded) {
    const series = learners.filter((learner) => view.match(learner.learner)).map((learner) => ({
      name: learner.learner, x: learner.over[view.over] ?? [], values: learner.mean, colour: () => colour(learners.indexOf(learner), learners.length),
      tail: ends[learner.learner]?.[view.over] ? { x: ends[learner.learner][view.over], values: ends[learner.learner].mean } : undefined,
      ...(banded ? { low: edge(learner, -1), high: edge(learner, 1) } : {}),
    }));
    return { xTitle: view.over, yTitle: "return", series, height: 300 };
  }
  return {
    node: h("div", null, returns.node, grid?.node),
    close() { drop(); grid?.close(); },
    set(data) { state.data = data; update(); },
    // Draws what is in progress as provisional points, and says what it is. status: LiveStatus or null.
    now(status) {
      state.status = status;
      write(under_way, status && !asked.policy ? `Under way in generation ${whole(status.generation)}: ${doing(status)}.` : "");
      const active = asked.policy ? [] : (status?.points ?? []).filter(({ over: done }) => !done);
      points.hidden = !active.length;
      clear(points).append(...active.slice(0, DESCRIBED).map((point) => h("li", { text: describe(point) })));
      if (state.data) update();
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
  const since = h("p", { class: "hint" });
  hint.after(since);
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
      write(hint, names.length ? `Where the time went, and environment steps per second.${lag}` : "");
      const told = Object.entries(data.told ?? {});
      what.hidden = !drawn.shares || !told.length;
      if (list.childElementCount !== told.length) clear(list).append(...told.map(([name, text]) => h("div", null, h("dt", { text: name.replaceAll("_", " ") }), h("dd", { text }))));
      if (!names.length) {
        close();
        return void clear(body).append(empty("Nothing has been measured yet: points come with checkpoints."));
      }
      if (names.join() !== Object.keys(charts).join()) {
        close();
        clear(body).append(h("div", { class: "pair" }, names.map((name) => places[name])));
        charts = Object.fromEntries(names.map((name) => [name, lines(places[name], drawn[name])]));
      } else for (const name of names) charts[name].set(drawn[name]);
    },
    now(status) {
      const measured = status ? [speed(status), shares(status)].filter(Boolean).join(" · ") : "";
      write(since, measured ? `Since the last checkpoint (provisional): ${measured}.` : "");
    },
  };
}

// ------------------------------------------------------------------------------------------------------------ parts

const COLUMNS = [
  { key: "name", title: "part", text: true },
  { key: "kind", title: "kind", text: true },
  { key: "state", title: "state", text: true, format: (state) => h("span", { class: `pill ${state}`, text: state }) },
  { key: "seen", title: "last heartbeat", format: (seen) => (seen === null ? "–" : ago(seen)) },
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
        clear(place).append(empty("The run has ended; no process reports."));
      } else if (grid) grid.set(parts);
      else grid = table(place, { label: "Parts", rows: parts, columns: COLUMNS, limit: 50, id: (part) => `${part.kind} ${part.name}` });
      clock ??= setInterval(() => grid?.set(parts), 1000);
      title.hidden = !data.deaths.length;
      clear(deaths).append(...data.deaths.slice(-100).reverse().map((death) => h("li", { class: "warning" }, time(death.time), h("span", { text: death.text }))));
    },
  };
}

const ago = (seen) => `${span(Math.max(0, Math.round(Date.now() / 1000 - seen)))} ago`;
