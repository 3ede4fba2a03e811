// The response graph: the profiles that matter, profitable deviations between them, sinks and cycles.

import { announce, h, write } from "./dom.js";
import { number, whole } from "./charts.js";
import { colours } from "./colours.js";
import { policyLink, refill } from "./links.js";
import { share } from "./measured.js";
import { shortNames } from "./names.js";
import { fitted, font, nearest, neighbour, stage } from "./stage.js";

const HEIGHT = 470;
const NARROW = 480, TALL = 560;  // of less width, names have two lines and the picture is higher
const ROUND = 12;  // nodes up to which they lie on a circle; more lie in two columns, so that each has room for its name
const FEW = 40;  // edges up to which all are drawn strongly; of more only the most profitable one of each node
const LISTED = 6;  // of sinks and dominated policies, before the rest is only counted
const LONGEST = 12, SHORTEST = 4;  // characters of a name that stays as it is: where there is room, and on a phone
const SPOKEN = 7;  // names of a cycle
const BESIDE = 6;  // pixels between a node and its name

export function responses(body, scene) {
  return new ResponsesView(body, scene);
}

// A cycle in words. labels: of its nodes. Edges go to what pays, so among policies whoever comes later beats the one before.
export function inWords(labels, kind) {
  if (kind === "profiles") return shortened([...labels, labels[0]]).join(" → ");
  return shortened([labels[0], ...labels.slice(1).toReversed(), labels[0]]).join(" beats ");
}

function shortened(names) {
  if (names.length <= SPOKEN + 1) return names;
  return [...names.slice(0, SPOKEN - 2), `… ${names.length - SPOKEN} more …`, ...names.slice(-2)];
}

// The order of n nodes around the picture: those of cycles one after the other, then from each to where its most profitable deviation leads.
export function around(n, edges, cycles) {
  const placed = new Set(cycles.flatMap(({ nodes }) => nodes));
  const best = mostProfitable(edges);
  let at = [...placed].at(-1) ?? 0;
  placed.add(at);
  while (placed.size < n) {
    const next = best.get(at)?.[1];
    at = next !== undefined && !placed.has(next) ? next : Array.from({ length: n }, (_, k) => k).find((k) => !placed.has(k));
    placed.add(at);
  }
  return n ? [...placed] : [];
}

// Of each node that has one, its most profitable deviation: Map of node -> edge.
function mostProfitable(edges) {
  const best = new Map();
  for (const edge of edges) if (!best.has(edge[0]) || best.get(edge[0])[2] < edge[2]) best.set(edge[0], edge);
  return best;
}

class ResponsesView {
  constructor(body, { run }) {
    this.run = run;
    this.places = [];
    this.pointed = this.chosen = null;  // labels
    this.cycle = null;  // place of the cycle that is chosen
    this.told = h("p", { class: "unseen", id: "responses-told" });
    this.about = h("p", { class: "hint" });
    this.list = h("div", { class: "answers-list" });
    const canvas = h("div", { class: "answers-graph" });
    const mark = (name, text) => h("span", { class: "key-item" }, h("i", { class: name, "aria-hidden": "true" }), text);
    const legend = h("div", { class: "key" }, mark("answers-sink", "in a sink"), mark("answers-other", "transient"), h("span", { text: "α: α-Rank mass" }));
    body.append(this.told, this.about, h("div", { class: "answers" }, canvas, this.list));
    this.theme();
    this.stage = stage(canvas, {
      label: "Response graph. Arrow keys go from one node to the next, Enter chooses; plus, minus and 0 zoom.", describedby: "responses-told", legend, centred: true,
      height: (width) => (width < NARROW ? TALL : HEIGHT),
      world: () => this.stage?.size ?? { width: 1, height: 1 },
      closest: () => 20,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point && nearest(this.places, point.screenX, point.screenY)),
      pick: (point) => this.choose(nearest(this.places, point.screenX, point.screenY)),
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
  }

  destroy() {
    this.stage.destroy();
  }

  theme() {
    this.colours = colours("ink", "soft", "faint", "line", "card", "accent", "good", "p1");
  }

  set([data, { info }]) {
    this.data = data;
    this.info = info;
    const { nodes, edges, cycles, kind, vertices, nodes_mass: mass, cut } = data;
    this.shorten(LONGEST);
    const weight = (node) => node.mass ?? node.probability, heaviest = Math.max(1e-9, ...nodes.map(weight));
    this.places = nodes.map((node, k) => ({ ...node, k, label: this.label(node), at: [0, 0], radius: 4 + 12 * Math.sqrt(weight(node) / heaviest) }));
    around(nodes.length, edges, cycles).forEach((k, place) => { this.places[k].order = place; });
    this.best = mostProfitable(edges);
    this.strongest = Math.max(1e-9, ...edges.map(([, , gain]) => gain));
    this.laid = null;
    if (this.cycle >= cycles.length) this.cycle = null;
    const few = vertices > nodes.length ? ` The ${nodes.length} shown have ${mass === null ? "the highest probabilities" : `${share(mass)} of α-Rank's mass`}.` : "";
    write(this.about, `${whole(vertices)} ${kind}.${few} ${cut}`.trim());
    write(this.told, `${whole(nodes.length)} ${kind} and ${whole(edges.length)} profitable deviations. ${this.lists().map(({ title, texts }) => `${title}: ${texts.slice(0, 3).join("; ") || "none"}.`).join(" ")}`);
    this.fill();
    this.stage.resize();
  }

  // longest: characters of a name that stays as it is.
  shorten(longest) {
    const full = [...new Set([...this.data.nodes, ...this.data.components].flatMap(({ members }) => members))], short = shortNames(full, longest);
    this.short = new Map(full.map((name, k) => [name, short[k]]));
  }

  label({ members }) {
    return members.map((name) => this.short.get(name)).join(" / ");
  }

  // ---------------------------------------------------------------------------------------------------------- in words

  lists() {
    const { nodes, components, cycles, dominated, kind, vertices } = this.data;
    const sinks = components.filter(({ sink }) => sink);
    return [
      { title: "Sinks", none: "none", texts: sinks.map((sink) => (sink.size === 1 ? this.label(sink) : `component of ${whole(sink.size)} ${kind} (of ${whole(vertices)}): no pure ranking`)) },
      { title: "Cycles through what is played", none: "none", texts: cycles.map((cycle) => inWords(cycle.nodes.map((k) => this.label(nodes[k])), kind)) },
      { title: "Dominated", none: "none", texts: dominated.map(({ policy, by, strictly }) => `${policy} by ${by}${strictly ? ", strictly" : ""}`) },
    ];
  }

  fill() {
    const [sinks, cycles, dominated] = this.lists();
    const some = (list, item) => (list.texts.length ? h("ul", null, list.texts.slice(0, LISTED).map(item), list.texts.length > LISTED && h("li", { class: "faint", text: `and ${whole(list.texts.length - LISTED)} more` })) : h("p", { class: "faint", text: list.none }));
    const cycle = (text, k) => h("li", null, h("button", { type: "button", class: "answers-cycle", "aria-pressed": String(this.cycle === k), text, on: { click: () => this.trace(k) } }), h("span", { class: "faint", text: ` each step gains ≥ ${number(this.data.cycles[k].gain, 3)}` }));
    const under = (text, k) => {
      const { population, policy, by, strictly } = this.data.dominated[k];
      return h("li", null, policyLink(this.run, population, policy), " by ", policyLink(this.run, population, by), strictly ? ", strictly" : "");
    };
    refill(this.list, [sinks, cycles, dominated, this.cycle, this.chosen, this.data.kind], () => [
      this.chosenNode(), h("h3", { text: sinks.title }), some(sinks, (text) => h("li", { text })), h("h3", { text: cycles.title }), some(cycles, cycle),
      h("h3", { text: dominated.title }), some(dominated, under),
    ]);
  }

  chosenNode() {
    const place = this.places.find(({ label }) => label === this.chosen);
    if (!place) return "";
    const { population } = this.info, best = this.best.get(place.k);
    const names = place.members.flatMap((policy, player) => [player ? " / " : "", policyLink(this.run, population[player], policy)]);
    const next = best ? `Most profitable deviation: to ${this.places[best[1]].label}, +${number(best[2], 3)}.` : "No profitable deviation to what is shown.";
    return h("div", { class: "chosen" }, h("h3", null, names), h("p", { text: this.lines(place).slice(1).join(" · ") }), h("p", { class: "faint", text: next }));
  }

  trace(k) {
    this.cycle = this.cycle === k ? null : k;
    this.fill();
    this.list.querySelector(".answers-cycle[aria-pressed='true']")?.focus();
    this.stage.draw();
  }

  // ---------------------------------------------------------------------------------------------------------- pointing

  point(place) {
    const label = place?.label ?? null;
    if (label === this.pointed) return;
    this.pointed = label;
    if (place) this.stage.tip(...place.at, this.lines(place).map((text, k) => h("p", null, k ? text : h("b", { text }))));
    else this.stage.tip(null);
    this.stage.draw();
  }

  lines({ members, mass, probability, sink, k }) {
    const out = this.data.edges.filter(([from]) => from === k).length, into = this.data.edges.filter(([, to]) => to === k).length;
    const counts = this.data.kind === "policies" ? `beats ${whole(into)}, loses to ${whole(out)}` : `${whole(out)} profitable deviations, ${whole(into)} lead here`;
    return [members.join(" / "), mass === null ? null : `α-Rank ${share(mass)}`, `played with ${share(probability)}`, counts, sink ? "in a sink" : "transient"].filter(Boolean);
  }

  choose(place) {
    this.chosen = place?.label ?? null;
    this.fill();
    this.stage.draw();
  }

  key(event) {
    const from = this.places.find(({ label }) => label === this.pointed) ?? null;
    if (event.key === "Enter" && from) this.choose(from);
    else if (event.key === "Escape") this.point(null);
    else if (event.key.startsWith("Arrow") && this.places.length) {
      const next = from ? neighbour(this.places, from, event.key) : this.places[0];
      if (next) {
        this.point(next);
        announce(this.lines(next).join(", "));
      }
    } else return false;
    return true;
  }

  // ---------------------------------------------------------------------------------------------------------- painting

  lay({ width, height }, context) {
    if (this.laid === `${width} ${height}`) return;
    this.laid = `${width} ${height}`;
    context.font = font(12);
    const n = this.places.length, widest = () => Math.max(0, ...this.places.flatMap((place) => this.caption(place)).map((text) => context.measureText(text).width)), most = 0.4 * width;
    this.narrow = width < NARROW;
    this.shorten(LONGEST);
    if (widest() > most) this.shorten(SHORTEST);
    const room = Math.min(widest() + 16 + BESIDE, most);  // beside the nodes, for names
    const across = Math.max(20, width / 2 - room - 8), up = height / 2 - 26, rows = Math.ceil(n / 2);
    for (const place of this.places) {
      const turn = 2 * Math.PI * ((place.order + 0.5) / n) - Math.PI / 2;
      const level = (2 * Math.floor(place.order / 2) + 1) / rows - 1, side = place.order % 2 ? -1 : 1;  // one right, one left: edges of a cycle cross the middle
      const [x, y] = n === 1 ? [0, 0] : n <= ROUND ? [Math.cos(turn), Math.sin(turn)] : [side * Math.sqrt(1 - 0.85 * level * level), level];
      place.home = [width / 2 + across * x, height / 2 + up * y];
    }
  }

  // The lines of a node's name.
  caption({ members, mass }) {
    const label = this.label({ members }), told = mass === null || mass < 5e-4 ? [] : [`α ${share(mass)}`];
    return this.narrow ? [label, ...told] : [[label, ...told].join("  ")];
  }

  paint(context, on) {
    if (!this.places.length) return;
    this.lay(on.size, context);
    for (const place of this.places) place.at = on.toScreen(...place.home);
    const focus = this.places.find(({ label }) => label === this.pointed) ?? this.places.find(({ label }) => label === this.chosen) ?? null;
    this.paintEdges(context, focus);
    this.paintCycle(context);
    this.paintNodes(context, focus);
    this.paintNames(context, on, focus);
  }

  paintEdges(context, focus) {
    const { edges } = this.data, few = edges.length <= FEW;
    for (const edge of edges) {
      const [from, to, gain] = edge, own = focus && (from === focus.k || to === focus.k), strong = few || this.best.get(from) === edge;
      if (!own && !strong && focus) continue;
      context.globalAlpha = own ? 0.95 : focus ? 0.15 : strong ? 0.35 + 0.4 * (gain / this.strongest) : 0.09;
      context.strokeStyle = context.fillStyle = own ? (from === focus.k ? this.colours.accent : this.colours.p1) : this.colours.soft;
      context.lineWidth = own ? 1.6 : 1;
      arrow(context, this.places[from], this.places[to], { head: own || strong });
    }
    context.globalAlpha = 1;
  }

  // The chosen cycle, or the strongest.
  paintCycle(context) {
    const cycle = this.data.cycles[this.cycle ?? 0];
    if (!cycle) return;
    context.strokeStyle = context.fillStyle = this.colours.accent;
    context.lineWidth = this.cycle === null ? 2 : 3;
    cycle.nodes.forEach((from, k) => arrow(context, this.places[from], this.places[cycle.nodes[(k + 1) % cycle.nodes.length]], { head: true }));
  }

  paintNodes(context, focus) {
    for (const place of this.places) {
      const { at: [x, y], radius, sink, label } = place;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = sink ? this.colours.good : this.colours.faint;
      context.fill();
      context.lineWidth = 1;
      context.strokeStyle = this.colours.card;
      context.stroke();
      if (label === this.chosen || place === focus) ring(context, x, y, { radius: radius + 5, stroke: label === this.chosen ? this.colours.accent : this.colours.ink, width: 2 });
    }
  }

  // Outside of the nodes, so that no edge runs through a name.
  paintNames(context, on, focus) {
    const middle = on.toScreen(on.size.width / 2, 0)[0];
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const place of this.places) {
      const { at: [x, y], radius } = place, right = x >= middle - 1;
      context.font = font(12, place === focus ? 700 : 400);
      context.textAlign = right ? "left" : "right";
      context.fillStyle = this.colours.ink;
      context.strokeStyle = this.colours.card;
      context.lineWidth = 3;
      const from = x + (right ? 1 : -1) * (radius + BESIDE), width = right ? on.size.width - from : from;
      if (width < 12) continue;
      const lines = this.caption(place);
      lines.forEach((line, k) => {
        const text = fitted(context, line, width), at = y + 13 * (k - (lines.length - 1) / 2);
        context.strokeText(text, from, at);
        context.fillText(text, from, at);
      });
    }
  }
}

function ring(context, x, y, { radius, stroke, width }) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.lineWidth = width;
  context.strokeStyle = stroke;
  context.stroke();
}

// From rim to rim, a little bent, so that a way there and a way back lie apart.
function arrow(context, from, to, { head }) {
  const [x0, y0] = from.at, [x1, y1] = to.at, length = Math.hypot(x1 - x0, y1 - y0);
  if (length < from.radius + to.radius + 2) return;
  const bend = Math.min(0.12 * length, 26), middle = [(x0 + x1) / 2 - (bend * (y1 - y0)) / length, (y0 + y1) / 2 + (bend * (x1 - x0)) / length];
  const rim = ([x, y], radius) => {
    const away = Math.hypot(middle[0] - x, middle[1] - y);
    return [x + ((middle[0] - x) * radius) / away, y + ((middle[1] - y) * radius) / away];
  };
  const start = rim([x0, y0], from.radius + 1), end = rim([x1, y1], to.radius + 3);
  context.beginPath();
  context.moveTo(...start);
  context.quadraticCurveTo(...middle, ...end);
  context.stroke();
  if (!head) return;
  const angle = Math.atan2(end[1] - middle[1], end[0] - middle[0]), size = 7;
  context.beginPath();
  context.moveTo(...end);
  context.lineTo(end[0] - size * Math.cos(angle - 0.42), end[1] - size * Math.sin(angle - 0.42));
  context.lineTo(end[0] - size * Math.cos(angle + 0.42), end[1] - size * Math.sin(angle + 0.42));
  context.closePath();
  context.fill();
}
