// One policy: where it comes from, how it learned, what it earns against whom.

import { announce, card, empty, h, picker, write } from "./dom.js";
import { lines, number, percent, table, whole } from "./charts.js";
import { colours } from "./colours.js";
import { cellOf, unpacked } from "./heatmap.js";
import { games, policyAddress, policyLink, refill, seat, seats, shares } from "./links.js";
import { domain, interval, measured, SMALL } from "./measured.js";
import { font, stage } from "./stage.js";

const OVER = ["decisions", "episodes", "updates", "seconds"];
const PANELS = ["policy", "lineage", "payoffs", "ranking", "strategies", "learning"];
const BARS = 240, AXIS = 48, UNDER = 8;  // pixels
const UNKNOWN = 404;

export async function show(root, { source, params: { run, population, policy }, go }) {
  const get = (panel, query) => source.get(`runs/${run}/${panel}`, query);
  const scene = { source, run, population: Number(population), policy, go, overview: await get("overview") };
  const load = async () => {
    try {
      return await get("policy", { population, policy });
    } catch (error) {
      if (source.live || error.status !== UNKNOWN) throw error;
      return known(get, scene);  // a snapshot has not every policy's page
    }
  };
  const data = await load();
  const parts = [new Head(root, scene), new Family(root, scene), new Results(root, scene), new Over(root), new Learning(root), new Counted(root), new Files(root)];
  parts.forEach((part) => part.set(data));
  return {
    async update(panels) {
      if (panels.has("overview")) {
        scene.overview = await get("overview");
        parts[0].offer();
      }
      if (!PANELS.some((name) => panels.has(name))) return;
      const next = await load();
      parts.forEach((part) => part.set(next));
    },
    close: () => parts.forEach((part) => part.destroy?.()),
  };
}

// What the run's own panels say of a policy, in the form of the panel "policy".
async function known(get, { source, population, policy, overview }) {
  const [{ populations }, rankings, payoffs, { over, last }] = await Promise.all([get("lineage"), get("ranking"), get("payoffs"), get("strategies")]);
  const members = populations.find((one) => one.population === population)?.members ?? [];
  const member = members.find((one) => one.policy === policy);
  if (!member) throw new Error(`population ${population} has no policy ${policy}.`);
  const row = rankings.find((one) => one.population === population)?.rows.find((one) => one.policy === policy);
  const player = overview.info.population.indexOf(population);
  const generations = over.find((one) => one.player === player)?.generation ?? [], mix = last.find((one) => one.player === player);
  const now = mix?.probability[mix.policies.indexOf(policy)] ?? 0;
  return {
    ...member, population, results: overview.info.population[payoffs.row_player] === population ? met(unpacked(payoffs, source), policy) : null,
    children: populations.flatMap((one) => one.members.filter(({ parent }) => parent?.population === population && parent.policy === policy).map((child) => child.policy)),
    mean: row?.mean ?? null, half_width: row?.half_width ?? null, rating_half_width: row?.rating_half_width ?? null, probability: generations.length ? [now] : [],
    learning: null, statistics: null, file: null, sha256: null, spec: null,
  };
}

// A row of the payoff table, if it is in there and is what the row's player earns.
function met(table, policy) {
  const i = table.rows.indexOf(policy);
  if (i < 0 || table.of !== table.row_player) return null;
  return table.columns.map((name, j) => {
    const { mean, interval: ends, count, exact, wins } = cellOf(table, i, j);
    return { player: table.of, against: [name], mean, interval: ends, n: exact ? 0 : count, exact, wins };
  });
}

// ------------------------------------------------------------------------------------------------------------ head

class Head {
  constructor(root, scene) {
    this.scene = scene;
    this.facts = h("p", { class: "lead" });
    this.links = h("div", { class: "tools" });
    root.append(h("div", { class: "policy-head" }, h("a", { class: "faint", href: `#/run/${scene.run}/population`, text: "← All policies" }), h("h2", { text: scene.policy }), this.facts, this.links));
  }

  set({ generation, rating, rating_half_width: half, probability }) {
    const players = this.players(), now = probability[probability.length - 1] ?? null;
    const told = [
      `Generation ${generation}`, `plays as player ${players.join(" or ")}`,
      rating === null || rating === undefined ? null : `rating ${interval(rating, half)}`,
      now === null ? null : now < SMALL ? "not played by the last meta-strategy" : `played with ${percent(now, 1)} by the last meta-strategy`,
    ];
    write(this.facts, `${told.filter(Boolean).join(", ")}.`);
    this.offer();
  }

  // What may be played with it now.
  offer() {
    const { policy, run, source, overview: { info, can } } = this.scene, [player] = this.players();
    const chosen = seats(info.population.length, { [player]: seat(player, policy) });
    const against = info.population.map((_, other) => ({ player: other, name: "it" })).filter((other) => other.player !== player).slice(0, 1);
    refill(this.links, can, () => games({ source, run, can, chosen, against, tree: true }));
  }

  players() {
    const { population, overview: { info } } = this.scene;
    return info.population.flatMap((one, player) => (one === population ? [player] : []));
  }
}

// ------------------------------------------------------------------------------------------------------------ family

class Family {
  constructor(root, scene) {
    this.scene = scene;
    const part = card("Lineage");
    this.body = part.body;
    root.append(part.node);
  }

  set({ parent, start, children, opponents, population }) {
    const { run, overview: { info } } = this.scene;
    const links = children.slice(0, 40).flatMap((name, k) => [k ? ", " : "", policyLink(run, population, name)]);
    const group = (term, ...content) => h("div", null, h("dt", { text: term }), h("dd", null, content));
    refill(this.body, [parent, start, children, opponents], () => [h("dl", { class: "family" },
      group("Parent", parent ? policyLink(run, parent.population, parent.policy) : `no parent (${start})`),
      group("Children", links.length ? [links, children.length > 40 ? ` and ${children.length - 40} more` : ""] : "no children"),
      group("Trained against", opponents.length ? shares(run, opponents.map((one) => ({ ...one, population: info.population[one.player] }))) : "no stored opponents"),
    )]);
  }
}

// ------------------------------------------------------------------------------------------------------------ results

const SORTS = ["return", "age"];

class Results {
  constructor(root, scene) {
    this.scene = scene;
    this.by = SORTS[0];
    this.pointed = null;
    const part = card("Results", { hint: "What it earned on average against each opponent, with the 95% interval.", controls: [picker("Order of the bars", SORTS.map((name) => `by ${name}`), 0, (k) => { this.by = SORTS[k]; this.arrange(); this.stage.draw(); })] });
    this.part = part;
    this.none = empty("No matches yet. Results appear with the first of them.");
    this.told = h("p", { class: "unseen", id: "results-told" });
    this.some = h("div", null, this.told);
    this.list = h("div");
    part.body.append(this.none, this.some, this.list);
    root.append(part.node);
    this.theme();
    this.stage = stage(this.some, {
      label: "Bars of results. Left and right go from one opponent to the next, Enter opens its page; plus, minus and 0 zoom.", describedby: "results-told", flat: true,
      height: () => BARS,
      insets: () => ({ left: AXIS, right: 4, top: 8, bottom: UNDER }),
      world: () => ({ width: this.bars?.length || 1, height: BARS - 8 - UNDER }),
      closest: () => 40,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point?.inside ? Math.floor(point.x) : null),
      pick: (point) => { if (this.bars[Math.floor(point.x)]) this.open(this.bars[Math.floor(point.x)]); },
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
  }

  destroy() {
    this.stage.destroy();
  }

  theme() {
    this.colours = colours("ink", "soft", "line", "grid", "heat-low", "heat-high");
  }

  set({ results }) {
    if (results === null) write(this.none.querySelector("p"), "Its results are not in this file: open the run with `ludus ui` to see them.");
    this.results = (results ?? []).map((row) => ({ ...row, name: row.against.join(" + ") || "alone" })).filter(({ mean }) => mean !== null && !Number.isNaN(mean));
    this.none.hidden = this.results.length > 0;
    this.some.hidden = this.list.hidden = !this.results.length;
    if (!this.results.length) return;
    const scale = domain(this.results, "mean", "interval");
    this.low = Math.min(0, scale[0]);
    this.high = Math.max(0, scale[1]);
    this.arrange();
    const best = this.results.reduce((a, b) => (b.mean > a.mean ? b : a)), worst = this.results.reduce((a, b) => (b.mean < a.mean ? b : a));
    write(this.told, `${whole(this.results.length)} opponents. Best against ${best.name}: ${interval(best.mean, best.interval)}; worst against ${worst.name}: ${interval(worst.mean, worst.interval)}. The table below has all.`);
    this.stage.resize();
    this.scale = scale;
    if (this.table) this.table.set(this.results);
    else this.makeTable();
  }

  arrange() {
    this.bars = this.by === "return" ? [...this.results].sort((a, b) => b.mean - a.mean) : this.results;
  }

  makeTable() {
    const { run, overview: { info } } = this.scene, players = info.population.length;
    const sides = new Set(this.results.map(({ player }) => player)).size > 1;
    const kept = new Map();  // the same nodes again, so that an update leaves the focus where it is
    const once = (what, { player, name }, make) => kept.get(`${what} ${player} ${name}`) ?? kept.set(`${what} ${player} ${name}`, make()).get(`${what} ${player} ${name}`);
    // The opponents' populations: those of the other players, in their order.
    const link = ({ player, against }) => {
      const others = info.population.filter((_, other) => other !== player);
      return h("span", null, against.flatMap((name, k) => [k ? " + " : "", policyLink(run, others[k] ?? others[0] ?? 0, name)]));
    };
    const won = this.results.some(({ wins }) => wins);
    const columns = [
      { key: "name", title: players > 2 ? "opponents" : "opponent", text: true, format: (_, row) => (row.against.length ? once("of", row, () => link(row)) : "alone") },
      sides && { key: "player", title: "as player", format: whole },
      { key: "mean", title: "mean return", format: (value, row) => measured(value, row.interval, this.scale) },
      { key: "n", title: "episodes", format: (value, row) => (row.exact ? "computed" : whole(value)) },
      won && { key: "wins", title: "won, drawn, lost", sorts: false, format: (wins) => (wins ? wins.map(whole).join(" · ") : "–") },
      { key: "show", title: "a game", unseen: true, sorts: false, format: (_, row) => once("game", row, () => this.game(row)) },
    ].filter(Boolean);
    this.table = table(this.list, { columns, rows: this.results, sort: { key: "mean", down: true }, limit: 15, label: "Results", id: (row) => `${row.player} ${row.name}` });
  }

  game({ player, against }) {
    const { run, policy, source, overview: { info, can } } = this.scene;
    const others = info.population.map((_, k) => k).filter((k) => k !== player);
    const given = Object.fromEntries([[player, seat(player, policy)], ...against.slice(0, others.length).map((name, k) => [others[k], seat(others[k], name)])]);
    const [link] = games({ source, run, can, chosen: seats(info.population.length, given) });
    if (!link) return "";
    link.className = "";
    link.textContent = "a game";
    return link;
  }

  // ---- bars

  y(value) {
    const tall = BARS - 8 - UNDER;
    return 8 + tall * (1 - (value - this.low) / (this.high - this.low || 1));
  }

  point(at) {
    const bar = this.bars?.[at] ?? null;
    this.pointed = bar ? at : null;
    if (bar) {
      const [x] = this.stage.toScreen(at + 0.5, 0);
      this.stage.tip(x, this.y(bar.mean), [h("p", { text: `against ${bar.name}` }), h("p", null, h("b", { text: interval(bar.mean, bar.interval) })), h("p", { class: "faint", text: bar.exact ? "computed, not played" : `${whole(bar.n)} episodes` })]);
    } else this.stage.tip(null);
    this.stage.draw();
  }

  open({ player, against }) {
    const { run, go, overview: { info } } = this.scene, [other] = info.population.filter((_, k) => k !== player);
    if (against.length) go(policyAddress(run, other ?? 0, against[0]));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.pointed !== null) this.open(this.bars[this.pointed]);
    else if (event.key === "Escape") this.point(null);
    else if (step !== undefined && this.bars?.length) {
      const at = Math.min(this.bars.length - 1, Math.max(0, (this.pointed ?? (step > 0 ? -1 : this.bars.length)) + step)), bar = this.bars[at];
      this.stage.show(at + 0.5, 0, 1);
      this.point(at);
      announce(`against ${bar.name}: ${interval(bar.mean, bar.interval)}`);
    } else return false;
    return true;
  }

  paint(context, on) {
    if (!this.bars?.length) return;
    const { body, view: { scale } } = on, zero = this.y(0);
    this.paintAxis(context, on);
    context.save();
    context.beginPath();
    context.rect(body.left, 0, body.width, BARS);
    context.clip();
    const from = Math.max(0, Math.floor(on.view.x)), to = Math.min(this.bars.length, Math.ceil(on.view.x + body.width / scale)), gap = scale > 5 ? 1 : 0;
    for (let k = from; k < to; k++) {
      const { mean, interval: ends } = this.bars[k], [x] = on.toScreen(k, 0), y = this.y(mean);
      context.fillStyle = mean < 0 ? this.colours.heat_low : this.colours.heat_high;
      context.globalAlpha = this.pointed === null || this.pointed === k ? 1 : 0.55;
      context.fillRect(x + gap, Math.min(y, zero), Math.max(0.5, scale - 2 * gap), Math.max(1, Math.abs(y - zero)));
      if (ends && ends[0] < ends[1]) this.paintWhisker(context, { x, scale, top: this.y(ends[1]), bottom: this.y(ends[0]) });
    }
    context.globalAlpha = 1;
    context.restore();
  }

  // A line where a bar has room for one; else together they are a band.
  paintWhisker(context, { x, scale, top, bottom }) {
    const wide = scale > 4;
    context.fillStyle = wide ? this.colours.ink : this.colours.soft;
    context.globalAlpha = wide ? 0.8 : 0.3;
    context.fillRect(wide ? x + scale / 2 - 0.5 : x, top, wide ? 1 : scale, bottom - top);
  }

  paintAxis(context, on) {
    const { body } = on, step = stepOf((this.high - this.low) / 6);
    context.font = font(12);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let k = Math.ceil(this.low / step); k * step <= this.high + 1e-12; k++) {
      const y = Math.round(this.y(k * step)) + 0.5;
      context.strokeStyle = k === 0 ? this.colours.soft : this.colours.grid;
      context.beginPath();
      context.moveTo(body.left, y);
      context.lineTo(body.left + body.width, y);
      context.stroke();
      context.fillStyle = this.colours.soft;
      context.fillText(number(Number((k * step).toPrecision(6)), 3), body.left - 6, y);
    }
  }
}

function stepOf(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return ([1, 2, 5, 10].find((k) => k * power >= least) ?? 10) * power;
}

// ------------------------------------------------------------------------------------------------------------ over generations, learning

class Over {
  constructor(root) {
    this.part = card("Probability over generations", { hint: "How likely the meta-strategy of each generation played it." });
    this.place = h("div");
    this.none = empty("No meta-strategy has been computed since it joined.");
    this.part.body.append(this.place, this.none);
    root.append(this.part.node);
  }

  set({ probability, generations }) {
    this.part.node.hidden = probability.length === 1;  // a snapshot knows the last only, and the head says it
    const largest = Math.max(0, ...probability);
    write(this.none.querySelector("p"), probability.length ? "Not played: below 0.1% in every generation." : "No meta-strategy has been computed since it joined.");
    this.none.hidden = largest >= SMALL;
    this.place.hidden = largest < SMALL;
    if (largest < SMALL) return;
    const data = { x: generations ?? [...probability.keys()], xTitle: "generation", yTitle: "probability", whole: true, height: 240, share: true, series: [{ name: "probability", values: probability }] };
    if (this.chart) this.chart.set(data);
    else this.chart = lines(this.place, data);
  }

  destroy() {
    this.chart?.destroy();
  }
}

class Learning {
  constructor(root) {
    this.over = OVER[0];
    this.metric = null;
    this.choice = h("select", { class: "field", "aria-label": "Metric", on: { change: () => { this.metric = this.choice.value; this.draw(); } } });
    this.part = card("Learning", { hint: "The tasks that this policy was trained in.", controls: [h("div", { class: "tools" }, this.choice, picker("Over", OVER, 0, (k) => { this.over = OVER[k]; this.draw(); }))] });
    this.places = [h("div"), h("div")];
    this.charts = [];
    this.part.body.append(h("div", { class: "pair" }, this.places));
    root.append(this.part.node);
  }

  set({ learning }) {
    this.learners = learning?.learners ?? [];
    this.part.node.hidden = !this.learners.length;
    if (!this.learners.length) return;
    const names = [...new Set(this.learners.flatMap(({ metrics }) => Object.keys(metrics)))];
    if (!names.includes(this.metric)) this.metric = names[0] ?? null;
    this.choice.hidden = names.length < 2;
    if (names.join() !== [...this.choice.options].map(({ value }) => value).join()) this.choice.replaceChildren(...names.map((value) => h("option", { value, text: value.replaceAll("_", " "), selected: value === this.metric })));
    this.draw();
  }

  draw() {
    this.chart(0, "mean return", ({ mean }) => mean, true);
    this.places[1].hidden = this.metric === null;
    if (this.metric !== null) this.chart(1, this.metric.replaceAll("_", " "), ({ metrics }) => metrics[this.metric] ?? []);
  }

  chart(k, yTitle, values, banded = false) {
    const one = (learner) => {
      const mean = values(learner), band = banded && this.learners.length < 3 && learner.spread.some((v) => v !== null);
      const edge = (sign) => mean.map((v, at) => (v === null || learner.spread[at] === null ? null : v + sign * learner.spread[at]));
      return { name: learner.learner, x: learner.over[this.over], values: mean, ...(band ? { low: edge(-1), high: edge(1) } : {}) };
    };
    const data = { xTitle: this.over, yTitle, height: 240, series: this.learners.map(one) };
    if (this.charts[k]) this.charts[k].set(data);
    else this.charts[k] = lines(this.places[k], data);
  }

  destroy() {
    this.charts.forEach((chart) => chart.destroy());
  }
}

// ------------------------------------------------------------------------------------------------------------ the rest

class Counted {
  constructor(root) {
    this.part = card("Statistics", { hint: "What the environment counts in an episode: means over all of its matches." });
    this.list = h("dl");
    this.part.body.append(this.list);
    root.append(this.part.node);
  }

  set({ statistics }) {
    this.part.node.hidden = !statistics?.names?.length;
    if (this.part.node.hidden) return;
    const { names, means, episodes } = statistics;
    this.list.replaceChildren(
      ...names.map((name, k) => h("div", null, h("dt", { text: name.replaceAll("_", " ") }), h("dd", { text: number(means[k]) }))),
      h("div", null, h("dt", { text: "episodes" }), h("dd", { text: whole(episodes) })),
    );
  }
}

class Files {
  constructor(root) {
    this.part = card("Files");
    root.append(this.part.node);
  }

  set({ task, file, sha256, spec }) {
    this.part.node.hidden = !file && !spec;
    const entry = (term, text) => (text ? h("div", null, h("dt", { text: term }), h("dd", { class: "exact", text })) : null);
    refill(this.part.body, [task, file, sha256, spec], () => [
      h("dl", null, entry("Kind", spec?.kind), entry("Made by task", task), entry("File in the run", file), entry("SHA-256", sha256)),
      spec ? h("details", null, h("summary", { text: "How its network is built" }), h("pre", { text: JSON.stringify(spec.config, null, 2) })) : "",
    ]);
  }
}
