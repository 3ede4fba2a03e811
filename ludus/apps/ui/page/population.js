// A population: payoffs, the meta-strategies, lineage, and cycles.
//
// The payoff table is drawn first, then every other part; a part whose data has changed asks for it again when it is on the screen.

import { announce, card, empty, failure, h, picker, sentence, write } from "./dom.js";
import { lines, number, percent, table, whole } from "./charts.js";
import { colour } from "./colours.js";
import { embedding } from "./embedding.js";
import { cellOf, ended, heatMap, notable, ORDERS, played, SCALES, title, unpacked, worth } from "./heatmap.js";
import { lineage } from "./lineage.js";
import { mixture, opponents } from "./mixture.js";
import { drawnBy, games, policyLink, refill, seat, seats, shares } from "./links.js";
import { RANKING } from "./ranking.js";
import { responses } from "./responses.js";

const NEAR = "500px";  // of the screen, within which a part is kept up to date
const PATIENCE = 1500;  // milliseconds that the other parts let the payoff table go first
const REST = 8;  // a part whose data takes t to come waits 8 t before it asks again

export async function show(root, context) {
  const { source, params: { run } } = context;
  let overview = null;  // asked for once, and again when it has changed
  const scene = {
    ...context, run,
    get: (panel, query) => source.get(`runs/${run}/${panel}`, query),
    overview: () => (overview ??= source.get(`runs/${run}/overview`)),
  };
  const parts = [PAYOFFS, STRATEGIES, RANKING, LINEAGE, RESPONSES, EMBEDDING].map((kind) => new Part(kind, scene));
  root.append(h("h2", { class: "unseen", text: "Population" }), contents(parts), ...parts.map((part) => part.card.node));
  await Promise.race([parts[0].refresh(), new Promise((go) => { setTimeout(go, PATIENCE); })]);
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) parts.find((part) => part.card.node === target).seen(isIntersecting);
  }, { rootMargin: NEAR });
  for (const part of parts) observer.observe(part.card.node);
  const every = source.whole ? Promise.all(parts.map((part) => part.refresh())) : whenIdle(parts);
  if (!source.live || source.whole) await every;  // it may be printed
  return {
    update(panels) {
      if (panels.has("overview")) overview = null;
      return Promise.all(parts.map((part) => part.changed(panels)));
    },
    close() {
      observer.disconnect();
      parts.forEach((part) => part.close());
    },
  };
}

function whenIdle(parts) {
  const idle = window.requestIdleCallback ?? ((f) => setTimeout(f, 1));
  return new Promise((done) => { idle(() => Promise.all(parts.map((part) => part.closed || part.refreshed || part.refresh())).then(done), { timeout: 500 }); });
}

function contents(parts) {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const jump = (part) => () => { part.card.node.scrollIntoView({ behavior: still.matches ? "auto" : "smooth" }); part.title.focus({ preventScroll: true }); };
  return h("nav", { class: "jumps", "aria-label": "Parts of this page" }, parts.map((part) => h("button", { type: "button", text: part.kind.title, on: { click: jump(part) } })));
}

// One card. kind: { title, hint, panels: those that it shows, load(scene, state) -> data, none(data) -> sentence where there is nothing yet,
// make(card, scene, state) -> { set(data), destroy() } }. state: what its controls have chosen; it outlives what is drawn.
class Part {
  constructor(kind, scene) {
    this.kind = kind;
    this.scene = scene;
    this.card = card(kind.title, { hint: kind.hint });
    this.card.node.classList.add("part");
    this.card.body.append(h("p", { class: "loading", text: "Loading …" }));
    this.title = this.card.node.querySelector("h2");
    this.title.tabIndex = -1;
    this.state = { reload: () => this.refresh() };
    this.view = null;
    this.stale = true;
    this.near = false;
    this.rested = 0;
  }

  seen(near) {
    this.near = near;
    if (near && this.stale) this.refresh();  // what is under way is not stale
  }

  changed(panels) {
    if (!this.kind.panels.some((name) => panels.has(name))) return undefined;
    this.stale = true;
    const wait = this.rested - performance.now();
    if (wait <= 0) return this.near ? this.refresh() : undefined;
    this.timer ??= setTimeout(() => { this.timer = null; if (this.near && this.stale) this.refresh(); }, wait);
    return undefined;
  }

  refresh() {
    this.stale = false;
    this.refreshed = this.fetch();
    return this.refreshed;
  }

  async fetch() {
    const from = performance.now(), turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const data = await this.kind.load(this.scene, this.state);
      if (turn !== this.turn || this.closed) return;
      this.put(data);
    } catch (error) {
      if (turn !== this.turn || this.closed) return;
      this.stale = true;
      if (this.view?.refused?.(error)) return;
      if (error.status === 0 && this.view) return;  // no server: the frame says so, and asks again when it is back
      if (error.status === undefined) throw error;  // not of the source: a mistake of ours
      this.drop();
      this.card.body.replaceChildren(failure(error, error.status === 404 ? null : () => this.refresh()));
    } finally {
      this.rested = performance.now() + REST * (performance.now() - from);
    }
  }

  put(data) {
    const none = this.kind.none(data);
    if (none) {
      this.drop();
      this.card.body.replaceChildren(empty(none));
      return;
    }
    if (!this.view) {
      this.card.body.replaceChildren();
      this.view = this.kind.make(this.card, this.scene, this.state);
    }
    this.view.set(data);
  }

  drop() {
    this.view?.destroy();
    this.view = null;
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.drop();
  }
}

// ------------------------------------------------------------------------------------------------------------ payoffs

const LARGE = 10_000;  // cells of a table, of which a larger one comes without wins
const LIVE = new Set(["running", "paused", "stopping"]);

const PAYOFFS = {
  title: "Payoffs", hint: "", panels: ["payoffs"],
  async load({ get, query, source, overview }, state) {
    state.choice ??= ["of", "row", "column"].every((key) => query.get(key)) ? ["of", "row", "column"].map((key) => Number(query.get(key))) : null;
    const [of, row, column] = state.choice ?? [];
    const [table, now] = await Promise.all([get("payoffs", state.choice ? { of, row, column } : {}), overview()]);
    // While a run goes on, what is new matters: by age the newest row and column are the last.
    state.order ??= ORDERS.includes(query.get("order")) ? query.get("order") : LIVE.has(now.state) ? "age" : ORDERS[0];
    return unpacked(table, source);
  },
  none: (data) => (data.rows.length && data.columns.length ? "" : "There are no policies yet. The table appears with the first of them."),
  make: (place, scene, state) => new Payoffs(place, scene, state),
};

class Payoffs {
  constructor({ head, body, hint }, scene, state) {
    this.scene = scene;
    this.state = state;
    this.hint = hint;
    this.state.scale ??= SCALES[0];
    const id = "payoffs-told";
    this.told = h("p", { class: "unseen", id });
    this.details = h("div", { class: "heat-details", "aria-live": "polite" });
    this.search = h("input", { class: "field", type: "search", placeholder: "Find a policy", "aria-label": "Find a policy in the table", list: "heat-names", on: { change: () => this.find(), keydown: (event) => { if (event.key === "Enter") this.find(); } } });
    this.options = h("datalist", { id: "heat-names" });
    this.choice = h("select", { class: "field", "aria-label": "Whose payoffs", on: { change: () => this.choose() } });
    this.controls = h("div", { class: "tools" }, this.choice, this.search, this.options, 
      picker("Colours by", SCALES.map((name) => (name === "all" ? "colours: all" : "colours: played")), SCALES.indexOf(this.state.scale), (k) => { this.state.scale = SCALES[k]; this.map.scaled(SCALES[k]); }),
      picker("Order", ORDERS.map((name) => `by ${name}`), ORDERS.indexOf(this.state.order), (k) => this.order(ORDERS[k])));
    head.append(this.controls);
    const map = h("div", { class: "heat-map" });
    body.append(this.told, h("div", { class: "heat-layout" }, map, this.details));
    this.map = heatMap(map, { describedby: id, pick: (cell) => this.pick(cell) });
  }

  destroy() {
    this.map.destroy();
    this.controls.remove();
  }

  set(data) {
    this.data = data;
    this.before = null;
    this.map.by = this.state.order;
    this.map.scale = this.state.scale;
    this.map.set(data);
    write(this.hint, introduction(data));
    write(this.told, summary(data));
    const names = [...new Set([...data.rows, ...data.columns])];
    this.search.hidden = names.length < 12;
    if (names.length !== this.options.childElementCount) this.options.replaceChildren(...names.map((value) => h("option", { value })));
    this.choices();
    this.explain();
  }

  choices() {
    const { choices, of, row_player: row, column_player: column } = this.data, now = String([of, row, column]);
    this.choice.hidden = choices.length < 2;
    if (this.choice.childElementCount === choices.length) return;
    this.choice.replaceChildren(...choices.map(([who, i, j]) => h("option", { value: String([who, i, j]), text: `What player ${who} earns: ${i} × ${j}`, selected: String([who, i, j]) === now })));
  }

  choose() {
    const { of, row_player: row, column_player: column } = this.data;
    this.before = [of, row, column];
    this.state.choice = this.choice.value.split(",").map(Number);
    this.picked = null;
    this.keep();
    this.state.reload();
  }

  // A snapshot need not have the tables of all players: then the one that is seen stays.
  refused(error) {
    if (!this.before || error.status !== 404) return false;
    this.state.choice = this.before;
    this.choice.value = String(this.before);
    this.before = null;
    this.keep();
    write(this.hint, sentence(error.message));
    announce(sentence(error.message));
    return true;
  }

  order(name) {
    this.state.order = name;
    this.map.order(name);
    this.keep();
  }

  // In the address too, so that it can be passed on.
  keep() {
    const { choice, order } = this.state, query = new URLSearchParams({ order });
    ["of", "row", "column"].forEach((key, k) => choice && query.set(key, choice[k]));
    history.replaceState(null, "", `#/run/${this.scene.run}/population${query.size ? `?${query}` : ""}`);
  }

  find() {
    const name = this.search.value.trim();
    if (!name) return;
    this.search.setCustomValidity(this.map.seek(name) ? "" : "There is no policy of this name in the table.");
    this.search.reportValidity();
  }

  pick(cell) {
    this.picked = [cell.row, cell.column];
    this.explain();
  }

  async explain() {
    const { data, picked } = this, { source } = this.scene, { info: { population } } = await this.scene.overview();
    if (data !== this.data || String(picked) !== String(this.picked)) return;
    const i = picked ? data.rows.indexOf(picked[0]) : -1, j = picked ? data.columns.indexOf(picked[1]) : -1;
    if (i < 0 || j < 0) {
      const text = `Click a cell for details${source.may.play ? " and a game" : ""}. Ctrl + wheel zooms.`, pairs = notable(data, population[data.row_player] === population[data.column_player]);
      refill(this.details, [text, pairs], () => [h("p", { class: "hint", text }), ...pairs.flatMap((list) => this.pairs(list))]);
      return;
    }
    const [overview, wins] = await Promise.all([this.scene.overview(), this.wins(i, j)]), cell = { ...cellOf(data, i, j), ...(wins ? { wins } : {}) };
    if (String(this.picked) === String(picked)) refill(this.details, [picked, data.of, worth(cell), played(cell), cell.wins, overview.can], () => this.facts(cell, overview));
  }

  // [won, drawn, lost] of a cell of a table that is too large to come with them; null where nobody counted.
  async wins(i, j) {
    const { wins, count, columns, of, row_player: row, column_player: column, row_index: rows, column_index: across } = this.data, { get, source } = this.scene;
    if (wins || !source.live || row === column || count.length <= LARGE || cellOf(this.data, i, j).exact || !count[i * columns.length + j]) return null;
    const part = (place) => `${place}:${place + 1}`;
    const table = unpacked(await get("payoffs", { of, row, column, order: "age", rows: part(rows[i]), columns: part(across[j]) }), source);
    return cellOf(table, 0, 0).wins;
  }

  // A list of cells, which open by a click.
  pairs({ heading, cells }) {
    const open = ([i, j]) => this.map.open([this.data.rows[i], this.data.columns[j]]);
    const line = (place) => {
      const cell = cellOf(this.data, ...place);
      return h("li", null, h("button", { type: "button", class: "heat-pair", text: title(cell, this.data), on: { click: () => open(place) } }), h("span", { text: number(cell.mean, 3) }));
    };
    return cells.length ? [h("h3", { text: heading }), h("ul", { class: "heat-pairs" }, cells.map(line))] : [];
  }

  facts(cell, { info: { population }, can }) {
    const { data } = this, { run, source } = this.scene, { row_player: row, column_player: column } = data, alone = row === column;
    const chosen = seats(population.length, { [column]: seat(column, cell.column), [row]: seat(row, cell.row) });
    const against = alone ? [] : [{ player: column, name: cell.row }, { player: row, name: cell.column }];
    return [
      h("h3", null, policyLink(run, population[row], cell.row), alone ? "" : [" against ", policyLink(run, population[column], cell.column)]),
      h("p", { class: "heat-value", text: worth(cell) }),
      h("p", { class: "faint", text: [alone ? "" : `to player ${data.of}`, played(cell)].filter(Boolean).join(", ") }),
      cell.wins ? h("p", { text: ended(cell.wins) }) : "",
      ...this.mirrored(cell, population),
      cell.known && !cell.exact && data.interval ? h("p", { class: "faint", text: data.interval }) : "",
      h("div", { class: "tools" }, games({ source, run, can, chosen, against, tree: true })),
    ];
  }

  // The same two the other way round, where both play from one population.
  mirrored({ row, column }, population) {
    const { data } = this, i = data.rows.indexOf(column), j = data.columns.indexOf(row);
    if (population[data.row_player] !== population[data.column_player] || row === column || i < 0 || j < 0) return [];
    return [h("p", { class: "faint", text: `The other way round, ${column} against ${row}: ${worth(cellOf(data, i, j))}.` })];
  }
}

function introduction({ of, row_player: row, column_player: column, others, rows, columns, rows_in_all: all, columns_in_all: across }) {
  if (row === column) return `What each policy earns on average.${all > rows.length ? ` These are the newest ${whole(rows.length)} of ${whole(all)}.` : ""}`;
  const who = (player) => (player === of ? "its own" : `player ${player}'s`);
  const cut = all > rows.length || across > columns.length ? `These are the newest ${whole(rows.length)} of ${whole(all)} and ${whole(columns.length)} of ${whole(across)}.` : "";
  return [`What player ${of} earns on average. The rows are ${who(row)} policies, the columns ${who(column)}.`, cut, others].filter(Boolean).join(" ");
}

function summary(data) {
  const { rows, columns, mean, of } = data;
  let low = Infinity, high = -Infinity, known = 0, lowest = 0, highest = 0;
  for (let at = 0; at < mean.length; at++) {
    const value = mean[at];
    if (Number.isNaN(value)) continue;
    known += 1;
    if (value < low) [low, lowest] = [value, at];
    if (value > high) [high, highest] = [value, at];
  }
  if (!known) return `A table of ${rows.length} rows and ${columns.length} columns; nothing has been played yet.`;
  const pair = (at) => title({ row: rows[Math.floor(at / columns.length)], column: columns[at % columns.length] }, data);
  return `What player ${of} earns, ${whole(rows.length)} rows by ${whole(columns.length)} columns, ${percent(known / mean.length)} of them known. `
    + `The most is ${number(high)}, ${pair(highest)}; the least ${number(low)}, ${pair(lowest)}. The ranking below has the same policies as a table.`;
}

// ------------------------------------------------------------------------------------------------------------ meta-strategies

const STRATEGIES = {
  title: "Meta-strategy", panels: ["strategies", "diversity"], hint: "",
  load: ({ get, overview }) => Promise.all([get("strategies"), get("diversity"), overview()]),
  none: ([{ over }]) => (over.length ? "" : "No meta-strategy has been computed yet. It appears with the first generation."),
  make: (place, scene) => new Strategies(place, scene),
};

// Players of one population who mix alike are shown once.
function together(over, population) {
  const found = new Map();
  for (const one of over) {
    const key = `${population[one.player]} ${JSON.stringify(one.layers)}`;
    if (found.has(key)) found.get(key).players.push(one.player);
    else found.set(key, { ...one, players: [one.player] });
  }
  return [...found.values()];
}

class Strategies {
  constructor({ body, hint }, scene) {
    this.scene = scene;
    this.hint = hint;
    this.views = [];  // one for each player, or for each pair of populations
    this.place = h("div", { class: "mixtures" });
    this.facts = h("p", { class: "hint" });
    this.effective = h("div");
    this.together = h("div");
    this.matter = h("div", null, h("h3", { text: "How many policies matter" }), this.facts, this.effective);
    body.append(this.place, this.together, this.matter);
  }

  destroy() {
    this.restart();
    this.chart?.destroy();
  }

  restart() {
    this.views.forEach(({ chart }) => chart.destroy());
    this.views = [];
    this.place.replaceChildren();
  }

  set([{ over: all, last, joint, trained }, diversity, { info: { population } }]) {
    const over = together(all, population), shape = trained.length ? trained.map(({ population: own, against }) => `${own} ${against}`) : over.map(({ players }) => String(players));
    if (String(this.views.map(({ key }) => key)) !== String(shape)) {
      this.restart();
      this.views = shape.map((key, k) => ({ key, ...(trained.length ? this.pair(trained[k], population) : this.player(over[k].players, over.length)) }));
    }
    write(this.hint, trained.length
      ? "The meta-strategy of each generation is one policy. Shown is who was trained against whom: rows are policies, columns their opponents, by age."
      : `Each column is a generation, each band a policy, as high as its probability. ${over.some(({ layers }) => layers.some(({ label }) => label.includes(" … "))) ? "Policies of similar age share a band." : "Policies below 2% are \u201cothers\u201d."}`);
    this.place.classList.toggle("pair", trained.length > 0);
    if (trained.length) trained.forEach((table, k) => this.views[k].chart.set({ ...table, shares: this.scene.source.unpack(table.shares).data }));
    else over.forEach((one, k) => this.views[k].chart.set(one));
    over.forEach(({ player, players }) => {
      const mix = last.find((one) => one.player === player), entries = (mix?.policies ?? []).map((policy, at) => ({ population: population[player], policy, probability: mix.probability[at] }));
      const list = this.views.find(({ plays }) => plays.includes(players[0]))?.list, now = () => (trained.length ? ["Plays now: ", ...entries.map((one) => policyLink(this.scene.run, one.population, one.policy))] : [h("p", { class: "faint", text: "Plays now" }), shares(this.scene.run, entries)]);
      if (list) refill(list, entries, now);
    });
    refill(this.together, joint, () => (joint ? this.correlated(joint, population) : []));
    this.matter.hidden = trained.length > 0;  // one
    if (!this.matter.hidden) this.diversity(diversity);
  }

  // Who is played together with whom, where the solver correlates the players.
  correlated({ profiles, probability: shares, count, rest, rows, columns, shares: pairs }, population) {
    const { run } = this.scene, list = h("div");
    const players = population.map((own, player) => ({ key: player, title: `player ${player}`, text: true, format: (policy) => policyLink(run, own, policy) }));
    table(list, {
      columns: [...players, { key: "probability", title: "probability", format: (value) => percent(value, 1) }],
      rows: profiles.map((profile, k) => ({ ...profile, probability: shares[k] })), label: "The profiles that are played most",
    });
    const few = rest > 0 ? ` The ${whole(profiles.length)} likeliest are listed; the others have ${percent(rest, 1)} together.` : "";
    const hint = `The meta-strategy is a joint one: what the players play is drawn together, not by each for itself. It has ${whole(count)} ${count === 1 ? "profile" : "profiles"} of a probability above 0.${few}`;
    return [h("h3", { text: "Played together now" }), h("p", { class: "hint", text: hint }), list, rows.length > 1 || columns.length > 1 ? paired(rows, columns, pairs) : ""];
  }

  player(players, charts) {
    const node = h("div"), list = h("div", { class: "mixture-now" });
    this.place.append(h("div", { class: "mixture" }, charts > 1 && h("h3", { text: `Player ${players.join(", ")}` }), h("div", { class: "mixture-both" }, node, list)));
    return { list, plays: players, chart: mixture(node) };
  }

  pair({ population: own, against, rows, in_all: all }, population) {
    const node = h("div"), list = h("div", { class: "mixture-now" }), playersOf = (which) => population.flatMap((one, player) => (one === which ? [player] : []));
    const heading = own === against ? "" : `Player ${playersOf(own).join(", ")} against player ${playersOf(against).join(", ")}`, cut = all > rows.length ? `${whole(rows.length)} of ${whole(all)} policies are shown, evenly by age.` : "";
    this.place.append(h("div", { class: "mixture" }, heading && h("h3", { text: heading }), list, cut && h("p", { class: "hint", text: cut }), node));
    return { list, plays: playersOf(own), chart: opponents(node) };
  }

  diversity({ generation, effective, support, last }) {
    const also = (name, value) => (value === null ? "" : `, ${name} ${number(value, 3)}`);
    const told = last.map(({ population, policies, effective_diversity: diversity, expected_cardinality: cardinality, clusters, alike }) =>
      `${last.length > 1 ? `Population ${population}: ` : ""}${whole(policies)} ${policies === 1 ? "policy" : "policies"}, ${clusters > 1 ? `${whole(clusters)} clusters of similar payoffs` : alike ? "all of similar payoffs" : "no clusters of similar payoffs"}${also("effective diversity", diversity)}${also("expected cardinality", cardinality)}.`);
    write(this.facts, `Effective number = exp(entropy) of the meta-strategy. ${told.join(" ")}`);
    const players = effective.map((_, player) => player).filter((player) => !effective.slice(0, player).some((values, other) => String(values) === String(effective[player]) && String(support[other]) === String(support[player])));
    const name = (what, player) => (players.length > 1 ? `${what}, player ${player}` : what);
    const data = {
      x: generation, xTitle: "generation", yTitle: "policies", whole: true, height: 240,
      series: players.flatMap((player) => {
        const own = () => colour(player, effective.length);
        return [{ name: name("effective number", player), values: effective[player], colour: own }, { name: name("support", player), values: support[player], dashed: true, colour: own }];
      }),
    };
    if (this.chart) this.chart.set(data);
    else this.chart = lines(this.effective, data);
  }
}

// Two players' policies, player 0's downwards: the likelier a pair, the darker.
function paired(rows, columns, pairs) {
  const most = Math.max(...pairs.flat());
  const cell = (value) => h("td", { style: { background: `color-mix(in srgb, var(--accent) ${Math.round((70 * value) / most)}%, transparent)` }, text: value > 0 ? percent(value, value < 0.1 ? 1 : 0) : "" });
  const head = h("tr", null, h("td"), columns.map((name) => h("th", { scope: "col", text: name })));
  const body = rows.map((name, i) => h("tr", null, h("th", { scope: "row", text: name }), pairs[i].map(cell)));
  return h("div", { class: "scroll pairs", tabindex: "0", role: "region", "aria-label": "The probability of each pair, player 0's policies in rows and player 1's in columns" },
    h("table", null, h("thead", null, head), h("tbody", null, body)));
}

// ------------------------------------------------------------------------------------------------------------ the others

const LINEAGE = {
  title: "Lineage", panels: ["lineage"],
  hint: "Parent → child, by generation. Larger dots are likelier in the meta-strategy, red ones stronger. Point at a dot for its line and its opponents.",
  load: ({ get, overview }) => Promise.all([get("lineage"), overview()]),
  none: ([{ populations }]) => (populations.some(({ members }) => members.length) ? "" : "No policies yet. They appear when they have been made."),
  make: ({ body }, scene) => lineage(body, scene),
};

const RESPONSES = {
  title: "Response graph", panels: ["responses"],
  hint: "An arrow points to a profitable deviation; sinks have none that leads out. Larger nodes have more of α-Rank's mass.",
  load: ({ get, overview }) => Promise.all([get("responses"), overview()]),
  none: ([{ nodes }]) => (nodes.length ? "" : "No payoffs yet. The graph appears with the first of them."),
  make: ({ body }, scene) => responses(body, scene),
};

const EMBEDDING = {
  title: "Map of policies", panels: ["embedding"], hint: "",
  load: ({ get }) => get("embedding"),
  none: (data) => (data.some(({ points }) => points.length) ? "" : "No payoffs yet. The map appears with the first of them."),
  make: (place, scene, state) => embedding(place, scene, state),
};
