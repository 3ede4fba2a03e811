// The response graph: which change of policy pays, where play comes to rest, and where it goes in circles.

import { announce, h, write } from "./dom.js";
import { number, whole } from "./charts.js";
import { colours } from "./colours.js";
import { policyLink, refill } from "./links.js";
import { share } from "./measured.js";
import { font, nameThem, nearest, neighbour, spread, stage } from "./stage.js";

const HEIGHT = 460;
const MANY = 150;  // nodes, from which on they are small, without rings, and faint where they weigh little
const HEADS = 400;  // more arrows are drawn without heads until a node is pointed at
const LISTED = 12;  // of cycles, sinks and dominated policies, before the rest is only counted
const SPOKEN = 7;  // names of a cycle

export function responses(body, scene) {
  return new ResponsesView(body, scene);
}

// A cycle in words. Edges go to what pays, so among policies whoever comes later beats the one before.
export function inWords({ cycle }, nodes, kind) {
  const names = cycle.map((k) => nodes[k].label);
  if (kind === "profiles") return `${shortened([...names, names[0]]).join(" → ")}`;
  return shortened([names[0], ...names.slice(1).toReversed(), names[0]]).join(" beats ");
}

function shortened(names) {
  if (names.length <= SPOKEN + 1) return names;
  return [...names.slice(0, SPOKEN - 2), `… ${names.length - SPOKEN} more …`, ...names.slice(-2)];
}

class ResponsesView {
  constructor(body, { run }) {
    this.run = run;
    this.places = [];
    this.pointed = this.chosen = null;  // labels
    this.cycle = null;  // id of the component whose cycle is chosen
    this.told = h("p", { class: "unseen", id: "responses-told" });
    this.cut = h("p", { class: "hint" });
    this.list = h("div", { class: "answers-list" });
    const canvas = h("div", { class: "answers-graph" });
    const mark = (name, text) => [h("i", { class: name, "aria-hidden": "true" }), h("span", { text })];
    const legend = h("div", { class: "key" }, mark("answers-rest", "play comes to rest here"), mark("answers-round", "in a circle"), mark("answers-other", "on the way"));
    body.append(this.told, this.cut, h("div", { class: "answers" }, canvas, this.list));
    this.theme();
    this.stage = stage(canvas, {
      label: "Response graph. Arrow keys go from one node to the next, Enter chooses; plus, minus and 0 zoom.", describedby: "responses-told", legend, centred: true,
      height: (width) => Math.min(HEIGHT, Math.max(260, 0.8 * width)),
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
    const { nodes, edges, kind } = data, heaviest = Math.max(1e-9, ...nodes.map(({ mass }) => mass ?? 0)), largest = Math.max(1, ...nodes.map(({ size }) => size));
    const base = nodes.length > MANY ? 2 : 5;
    this.places = nodes.map((node, k) => ({
      ...node, k, name: node.label, at: [0, 0],
      faint: nodes.length > MANY ? 0.3 + 0.7 * Math.sqrt((node.mass ?? heaviest) / heaviest) : 1,
      radius: base + (node.mass !== null ? 10 * Math.sqrt(node.mass / heaviest) * (node.mass > 0) : kind === "clusters" ? 12 * Math.sqrt(node.size / largest) : 0),
    }));
    this.strongest = Math.max(1e-9, ...edges.map(([, , gain]) => gain));
    this.laid = null;
    const many = { policies: "policies", profiles: "profiles", clusters: "groups of policies" }[kind];
    write(this.cut, data.cut);
    write(this.told, `${whole(nodes.length)} ${many} and ${whole(edges.length)} changes that pay. ${this.lists().map(({ title, texts }) => `${title}: ${texts.slice(0, 3).join("; ") || "none"}.`).join(" ")}`);
    this.fill();
    this.stage.resize();
  }

  // ---------------------------------------------------------------------------------------------------------- in words

  lists() {
    const { nodes, components, dominated, kind } = this.data;
    const sinks = components.filter(({ sink }) => sink), within = (id) => nodes.filter(({ component }) => component === id).map(({ label }) => label);
    return [
      { title: "Where play comes to rest", none: "nowhere that is shown", texts: sinks.map(({ id, size, cycle }) => (size === 1 || !cycle.length ? within(id).slice(0, 6).join(", ") : `a circle of ${whole(size)} ${kind}`)) },
      { title: "Circles", none: "none: every change that pays leads upwards", texts: this.cycles.map((component) => inWords(component, nodes, kind)) },
      { title: "Dominated", none: "none: no policy does at least as well as another one against everybody", texts: dominated.map(({ policy, by, strictly }) => `${policy} by ${by}${strictly ? ", strictly" : ""}`) },
    ];
  }

  get cycles() {
    return this.data.components.filter(({ cycle }) => cycle.length).sort((a, b) => b.size - a.size);
  }

  fill() {
    const [sinks, circles, dominated] = this.lists();
    const some = (list, item) => (list.texts.length ? h("ul", null, list.texts.slice(0, LISTED).map(item), list.texts.length > LISTED && h("li", { class: "faint", text: `and ${whole(list.texts.length - LISTED)} more` })) : h("p", { class: "faint", text: list.none }));
    const circle = (text, k) => h("li", null, h("button", { type: "button", class: "answers-circle", "aria-pressed": String(this.cycle === this.cycles[k].id), text, on: { click: () => this.trace(this.cycles[k]) } }));
    const under = (text, k) => {
      const { population, policy, by, strictly } = this.data.dominated[k];
      return h("li", null, policyLink(this.run, population, policy), " by ", policyLink(this.run, population, by), strictly ? ", strictly" : "");
    };
    const told = [sinks, circles, dominated, this.cycle, this.chosen, this.data.kind];
    refill(this.list, told, () => [
      h("h3", { text: sinks.title }), some(sinks, (text) => h("li", { text })), h("h3", { text: circles.title }), some(circles, circle),
      h("h3", { text: dominated.title }), some(dominated, under), this.about(),
    ]);
  }

  about() {
    const place = this.places.find(({ label }) => label === this.chosen);
    if (!place) return "";
    const { kind, edges } = this.data;
    const population = this.info.population[0];
    const names = place.members.slice(0, 12).flatMap((policy, k) => [k ? ", " : "", policyLink(this.run, kind === "profiles" ? this.info.population[k] : population, policy)]);
    const out = edges.filter(([from]) => from === place.k).sort((a, b) => b[2] - a[2]);
    const next = out.length ? `From here it pays most to go over to ${this.data.nodes[out[0][1]].label} (${number(out[0][2], 3)} more).` : "From here no change that is drawn pays.";
    return h("div", { class: "chosen" }, h("h3", { text: place.label }), h("p", null, names, place.size > place.members.length ? ` and ${place.size - place.members.length} more` : ""), h("p", { class: "faint", text: next }));
  }

  trace({ id }) {
    this.cycle = this.cycle === id ? null : id;
    this.fill();
    this.list.querySelector(".answers-circle[aria-pressed='true']")?.focus();
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

  lines({ label, size, mass, sink, k }) {
    const out = this.data.edges.filter(([from]) => from === k).length, into = this.data.edges.filter(([, to]) => to === k).length;
    return [label, size > 1 ? `${whole(size)} policies` : null, mass === null ? null : `mass ${share(mass)}`, `${whole(into)} come here, ${whole(out)} lead on`, sink ? "play comes to rest here" : null].filter(Boolean);
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

  lay({ width, height }) {
    if (this.laid === `${width} ${height}`) return;
    this.laid = `${width} ${height}`;
    spread(this.places, width, height, 44).forEach((at, k) => { this.places[k].home = at; });
  }

  paint(context, on) {
    if (!this.places.length) return;
    this.lay(on.size);
    for (const place of this.places) place.at = on.toScreen(...place.home);
    const focus = this.places.find(({ label }) => label === this.pointed) ?? this.places.find(({ label }) => label === this.chosen) ?? null;
    this.paintEdges(context, focus);
    this.paintCycles(context);
    this.paintNodes(context, focus);
    context.font = font(12);
    const worth = (place) => (place === focus ? 4 : 0) + (place.label === this.chosen ? 3 : 0) + (place.sink ? 1 : 0) + (place.mass ?? 0);
    nameThem(context, [...this.places].sort((a, b) => worth(b) - worth(a)), { width: on.size.width, height: on.size.height, most: (this.places.length > MANY ? 4 : 20) + 10 * on.view.scale, colour: this.colours.ink, halo: this.colours.card });
  }

  paintEdges(context, focus) {
    const { edges } = this.data, heads = edges.length <= HEADS;
    for (const [from, to, gain] of edges) {
      const mine = focus && (from === focus.k || to === focus.k);
      context.globalAlpha = mine ? 0.95 : (focus || this.cycle !== null ? 0.12 : 0.2 + 0.5 * (gain / this.strongest)) * (heads ? 1 : Math.min(0.35, 500 / edges.length));
      context.strokeStyle = context.fillStyle = mine ? (from === focus.k ? this.colours.accent : this.colours.p1) : this.colours.faint;
      context.lineWidth = mine ? 1.6 : 1;
      arrow(context, this.places[from], this.places[to], { head: heads || mine });
    }
    context.globalAlpha = 1;
  }

  paintCycles(context) {
    const few = this.cycles.length <= 3;
    for (const { id, cycle } of this.cycles) {
      if (this.cycle === null ? !few : this.cycle !== id) continue;
      context.strokeStyle = context.fillStyle = this.colours.accent;
      context.lineWidth = this.cycle === id ? 3 : 2;
      cycle.forEach((from, k) => arrow(context, this.places[from], this.places[cycle[(k + 1) % cycle.length]], { head: true }));
    }
  }

  paintNodes(context, focus) {
    const circular = new Set(this.cycles.map(({ id }) => id));
    for (const place of this.places) {
      const { at: [x, y], radius, sink, component, label, faint } = place;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = sink ? this.colours.good : circular.has(component) ? this.colours.accent : this.colours.faint;
      context.globalAlpha = faint;
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = 1;
      context.strokeStyle = this.colours.card;
      context.stroke();
      if (sink && this.places.length <= MANY) ring(context, x, y, { radius: radius + 3, stroke: this.colours.good, width: 1.5 });
      if (label === this.chosen || place === focus) ring(context, x, y, { radius: radius + 5, stroke: label === this.chosen ? this.colours.accent : this.colours.ink, width: 2 });
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
  const start = rim([x0, y0], from.radius + 1), end = rim([x1, y1], to.radius + (to.sink ? 6 : 3));
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
