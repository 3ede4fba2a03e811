// Lineage: parents and children, generations from left to right, each line of copies in a lane of its own.

import { announce, h, write } from "./dom.js";
import { number, whole } from "./charts.js";
import { colours, css, ramp } from "./colours.js";
import { policyLink, refill, shares } from "./links.js";
import { share, SMALL } from "./measured.js";
import { shortNames } from "./names.js";
import { font, nameThem, nearest, neighbour, scaleKey, stage } from "./stage.js";

const TALLEST = 520, AXIS = 26, TITLE = 36;  // pixels
const LANES = [[6, 44], [18, 26], [Infinity, 15]];  // up to so many lanes: pixels of one
const WIDE = 3.8;  // times the radius of the largest dot are a lane: names of the lane below keep their place
const NAMED = 400;  // names at most
const ONE_POINT = 1;  // of Elo, below which ratings are equal
const APART = 24;  // lanes of a population, up to which no connection runs through another's
const FOLDED = 7;  // pixels of a generation, below which a line of copies is drawn without those in between

export function lineage(body, scene) {
  return new LineageView(body, scene);
}

// The members of all populations as a forest, each in a lane. populations: of the panel "lineage".
// Returns { members: Map of "population/policy" -> node, bands: [{ population, lane, lanes, apart: whether no connection runs through another's lane }], lanes, first, last }; a node has member, population,
// parent, children, lane, generation.
export function forest(populations) {
  const members = new Map(), bands = [];
  for (const { population, members: own } of populations) {
    own.forEach((member, index) => members.set(`${population}/${member.policy}`, { member, population, index, key: `${population}/${member.policy}`, name: member.policy, generation: member.generation, parent: null, children: [], lane: 0 }));
  }
  for (const node of members.values()) {
    const { parent } = node.member;
    node.parent = (parent && members.get(`${parent.population}/${parent.policy}`)) ?? null;
    if (node.parent === node) node.parent = null;
    node.parent?.children.push(node);
  }
  let lanes = 0;
  for (const { population } of populations) {
    const own = [...members.values()].filter((node) => node.population === population).sort((a, b) => a.generation - b.generation || a.index - b.index);
    let used = pack(own, true);
    const apart = used <= APART;
    if (!apart) used = pack(own, false);
    for (const node of own) node.lane += lanes;
    bands.push({ population, lane: lanes, lanes: used, apart });
    lanes += used;
  }
  const generations = [...members.values()].map(({ generation }) => generation);
  return { members, bands, lanes, first: Math.min(...generations), last: Math.max(...generations) };
}

// Gives each line of copies (a member, the child with most after it, and so on) the free lane nearest to the one that it leaves. reserve: a
// lane is taken from where the line leaves its parent, else from its first member. Returns how many there are.
function pack(own, reserve) {
  const after = new Map();  // the longest way down from each
  for (const node of own.toReversed()) after.set(node, 1 + Math.max(0, ...node.children.map((child) => after.get(child) ?? 0)));
  const heir = (node) => node.children.filter((child) => child.population === node.population && child.generation > node.generation)
    .reduce((best, child) => (best === null || after.get(child) > after.get(best) ? child : best), null);
  const ends = [];  // of each lane, the generation of the last in it
  const placed = new Set();
  const since = ({ parent, generation }) => (parent && reserve ? Math.min(parent.generation + 1, generation) : generation);
  for (const start of own) {
    if (placed.has(start)) continue;
    const line = [start];
    for (let next = heir(start); next && !placed.has(next); next = heir(next)) line.push(next);
    const from = start.parent && start.parent.population === start.population ? start.parent.lane : 0;
    const free = ends.map((_, lane) => lane).filter((lane) => ends[lane] < since(start));
    const lane = free.length ? free.reduce((best, one) => (Math.abs(one - from) < Math.abs(best - from) ? one : best)) : ends.length;
    ends[lane] = line[line.length - 1].generation;
    for (const node of line) {
      node.lane = lane;
      placed.add(node);
    }
  }
  return Math.max(1, ends.length);
}

// Of each value its rank in [0, 1]; those that are within `negligible` of the least of their group share one, and all together are in the middle.
export function ranks(values, negligible) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]), out = values.map(() => 0.5);
  for (let first = 0; first < order.length;) {
    let end = first;
    while (end < order.length && values[order[end]] - values[order[first]] <= negligible) end += 1;
    for (const k of order.slice(first, Math.max(end, first + 1))) out[k] = order.length > 1 ? (first + Math.max(end, first + 1) - 1) / 2 / (order.length - 1) : 0.5;
    first = Math.max(end, first + 1);
  }
  return out;
}

class LineageView {
  constructor(body, { run }) {
    this.run = run;
    this.pointed = this.chosen = null;  // keys
    this.told = h("p", { class: "unseen", id: "lineage-told" });
    this.about = h("div", { class: "chosen" });
    const legend = h("div", { class: "key" }, scaleKey("weakest", "age-scale", "strongest"), h("span", { class: "key-item" }, h("i", { class: "lineage-root", "aria-hidden": "true" }), "no parent"));
    this.more = h("span", { text: "Drag to see the other lanes.", hidden: true });
    legend.append(this.more);
    body.append(this.told);
    this.theme();
    this.stage = stage(body, {
      label: "Lineage. Arrow keys go from one policy to the next, Enter chooses; plus, minus and 0 zoom.", describedby: "lineage-told", legend, flat: true,
      height: () => Math.min(TALLEST, AXIS + (this.tall ?? 100)),
      insets: () => ({ left: 8, right: 8, bottom: AXIS }),
      world: () => ({ width: this.span ?? 1, height: this.tall ?? 100 }),
      closest: () => 110,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point?.inside ? nearest(this.nodes, point.screenX, point.screenY) : null),
      pick: (point) => this.choose(nearest(this.nodes, point.screenX, point.screenY)),
      key: (event) => this.key(event),
      theme: () => { this.theme(); this.dress(); },
    });
    body.append(this.about);
  }

  destroy() {
    this.stage.destroy();
  }

  theme() {
    this.colours = colours("ink", "soft", "faint", "line", "grid", "card", "accent", "p1");
  }

  set([{ populations }, { info }]) {
    this.info = info;
    this.forest = forest(populations);
    const { members, bands, lanes, first, last } = this.forest;
    this.nodes = [...members.values()];
    this.negligible = new Map(populations.map(({ population, negligible }) => [population, negligible ?? 0]));
    const short = shortNames(this.nodes.map(({ member }) => member.policy));
    this.nodes.forEach((node, k) => { node.name = short[k]; });
    this.span = last - first + 1;
    this.lane = LANES.find(([most]) => lanes <= most)[1];
    this.titled = bands.length > 1;
    this.tall = lanes * this.lane + bands.length * (this.titled ? TITLE : 0) + 12;
    bands.forEach((band, k) => { band.y = band.lane * this.lane + (k + 1) * (this.titled ? TITLE : 0) + 6; });
    for (const node of this.nodes) {
      const band = bands.find(({ population }) => population === node.population);
      node.y = band.y + (node.lane - band.lane + 0.5) * this.lane;
      node.apart = band.apart;
      node.x = node.generation - first + 0.5;
      node.radius = Math.min(this.lane / WIDE, 3.5 + 9 * Math.sqrt(node.member.probability));
    }
    this.dress();
    const roots = this.nodes.filter(({ parent }) => !parent).length;
    write(this.told, `${whole(this.nodes.length)} policies of generations ${first} to ${last}; ${whole(roots)} of them began without a parent. The policy pages list parents, children and opponents.`);
    if (this.chosen) this.explain();
    this.more.hidden = this.tall + AXIS <= TALLEST;
    this.stage.resize();
  }

  // Colours by rank of strength within a population; what differs by noise only has one rank.
  dress() {
    for (const { population } of this.forest?.bands ?? []) {
      const rated = this.nodes.some((node) => node.population === population && node.member.rating !== null);
      const strength = ({ member }) => (rated ? member.rating : member.mean) ?? null;
      const own = this.nodes.filter((node) => node.population === population && strength(node) !== null);
      const places = ranks(own.map(strength), rated ? ONE_POINT : this.negligible.get(population));
      own.forEach((node, k) => { node.colour = ramp(places[k]); });
    }
  }

  // ---------------------------------------------------------------------------------------------------------- pointing

  point(node) {
    if ((node?.key ?? null) === this.pointed) return;
    this.pointed = node?.key ?? null;
    if (node) this.stage.tip(...node.at, this.lines(node).map((text, k) => h("p", null, k ? text : h("b", { text }))));
    else this.stage.tip(null);
    this.stage.draw();
  }

  lines({ member, parent }) {
    const strength = member.rating === null ? (member.mean === null ? null : `mean return ${number(member.mean)}`) : `rating ${number(member.rating)}`;
    const met = [...member.opponents].sort((a, b) => b.probability - a.probability).slice(0, 3).map(({ policy, probability }) => `${policy} ${share(probability)}`);
    return [
      member.policy, `generation ${member.generation}, ${parent ? `parent ${parent.member.policy}` : `began as ${member.start}`}`, strength,
      member.probability >= SMALL ? `played with ${share(member.probability)}` : null, met.length ? `trained against ${met.join(", ")}${member.opponents.length > 3 ? " …" : ""}` : null,
    ].filter(Boolean);
  }

  choose(node) {
    this.chosen = node?.key ?? null;
    this.explain();
    this.stage.draw();
  }

  explain() {
    const node = this.forest.members.get(this.chosen);
    const told = node ? [node.key, node.parent?.key, node.children.map(({ key }) => key), node.member.opponents] : null;
    refill(this.about, told, () => (node ? this.facts(node) : []));
  }

  facts(node) {
    const { population } = this.info, { opponents, derived } = node.member;
    const names = (nodes) => nodes.flatMap((one, k) => [k ? ", " : "", policyLink(this.run, one.population, one.member.policy)]);
    const met = opponents.map(({ player, policy, probability }) => ({ population: population[player], policy, probability }));
    const copied = node.children.length ? [". Children: ", names(node.children.slice(0, 12)), node.children.length > 12 ? ` and ${node.children.length - 12} more` : ""] : "";
    const against = !met.length ? "No stored opponents." : derived ? "Trained against (by the meta-strategies of the generation before)" : "Trained against";
    return [
      h("h3", null, policyLink(this.run, node.population, node.member.policy)),
      h("p", null, `Generation ${node.generation}, `, node.parent ? ["parent ", names([node.parent])] : `began as ${node.member.start}`, copied, "."),
      h("p", { class: "faint", text: against }), met.length ? shares(this.run, met) : "",
    ];
  }

  key(event) {
    const from = this.forest?.members.get(this.pointed) ?? null;
    if (event.key === "Enter" && from) this.choose(from);
    else if (event.key === "Escape") this.point(null);
    else if (event.key.startsWith("Arrow") && this.nodes?.length) {
      const next = from ? neighbour(this.nodes, from, event.key) : this.nodes[this.nodes.length - 1];
      if (next) {
        this.stage.show(next.x, next.y, 2);
        this.stage.paint();  // so that its place on the screen is the new one
        this.point(next);
        announce(this.lines(next).join(", "));
      }
    } else return false;
    return true;
  }

  // ---------------------------------------------------------------------------------------------------------- painting

  // All from whom a node stems, itself included, and all that stem from it.
  related(node) {
    const line = new Set();
    for (let at = node; at && !line.has(at); at = at.parent) line.add(at);
    const below = [...(node?.children ?? [])];
    while (below.length) {
      const next = below.pop();
      if (line.has(next)) continue;
      line.add(next);
      below.push(...next.children);
    }
    return line;
  }

  paint(context, on) {
    if (!this.nodes?.length) return;
    const { body, view: { scale } } = on;
    for (const node of this.nodes) node.at = on.toScreen(node.x, node.y);
    const focus = this.forest.members.get(this.pointed) ?? this.forest.members.get(this.chosen) ?? null, line = this.related(focus);
    context.save();
    context.beginPath();
    context.rect(0, 0, on.size.width, body.height);
    context.clip();
    this.paintBands(context, on);
    this.paintEdges(context, (node) => !focus || !line.has(node) || !line.has(node.parent), focus ? this.colours.line : this.colours.faint, 1.2);
    if (scale < FOLDED) this.paintLines(context, focus && line);
    if (focus) this.paintEdges(context, (node) => line.has(node) && line.has(node.parent), this.colours.accent, 2.2);
    if (focus) this.paintOpponents(context, focus);
    this.paintNodes(context, on, { focus, line });
    this.paintNames(context, on, focus);
    context.restore();
    this.paintAxis(context, on, scale);
  }

  paintBands(context, on) {
    if (!this.titled) return;
    context.font = font(12, 600);
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { population, y } of this.forest.bands) {
      const top = on.toScreen(0, y)[1], players = this.info.population.flatMap((one, player) => (one === population ? [player] : []));
      context.fillStyle = this.colours.soft;
      context.fillText(players.length > 1 ? `Players ${players.join(", ")}` : `Player ${players[0] ?? population}`, 0, top - TITLE + 12);
    }
  }

  paintEdges(context, which, stroke, width) {
    context.beginPath();
    for (const node of this.nodes) {
      if (!node.parent || !which(node)) continue;
      const [x0, y0] = node.parent.at, [x1, y1] = node.at, turn = node.apart ? Math.min(26, (x1 - x0) / 2) : (x1 - x0) / 2;
      context.moveTo(x0, y0);
      if (y0 === y1) context.lineTo(x1, y1);
      else {
        context.bezierCurveTo(x0 + turn, y0, x0 + turn, y1, x0 + 2 * turn, y1);
        context.lineTo(x1, y1);
      }
    }
    context.lineWidth = width;
    context.strokeStyle = stroke;
    context.globalAlpha = this.stage.view.scale < FOLDED ? 0.6 : 1;
    context.stroke();
    context.globalAlpha = 1;
  }

  // Where its members are left out, a line of copies has their colours.
  paintLines(context, only) {
    context.lineWidth = 4;
    for (const node of this.nodes) {
      if (node.parent?.y !== node.y) continue;
      context.globalAlpha = only && !only.has(node) ? 0.25 : 1;
      context.strokeStyle = node.colour ?? this.colours.faint;
      context.beginPath();
      context.moveTo(node.parent.at[0] - 0.5, node.at[1]);
      context.lineTo(node.at[0] + 0.5, node.at[1]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  paintOpponents(context, node) {
    context.strokeStyle = this.colours.p1;
    for (const { player, policy, probability } of node.member.opponents) {
      const other = this.forest.members.get(`${this.info.population[player]}/${policy}`);
      if (!other) continue;
      const [x0, y0] = node.at, [x1, y1] = other.at, lift = 14 + 0.18 * Math.abs(x1 - x0);
      context.globalAlpha = 0.75;
      context.lineWidth = 1 + 6 * probability;
      context.beginPath();
      context.moveTo(x0, y0);
      context.quadraticCurveTo((x0 + x1) / 2, Math.min(y0, y1) - lift, x1, y1);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  // Where generations are narrow only those are drawn that say something: ends, branchings, and who is in the meta-strategy.
  paintNodes(context, on, { focus, line }) {
    const { scale } = on.view, folded = scale < FOLDED, least = Math.max(1.5, Math.min(3.5, scale / 3));
    for (const node of this.nodes) {
      const [x, y] = node.at;
      if (x < -20 || x > on.size.width + 20 || y < -20 || y > on.size.height + 20) continue;
      const matters = node.member.probability >= SMALL, plain = folded && !matters && node.parent && node.children.length === 1 && node !== focus;
      if (plain) continue;
      context.globalAlpha = focus && !line.has(node) ? 0.3 : 1;
      context.beginPath();
      context.arc(x, y, node === focus || matters ? Math.max(node.radius, 3.5) : least, 0, 2 * Math.PI);
      context.fillStyle = node.colour ?? this.colours.faint;
      context.fill();
      if (!node.parent && !folded) {
        context.strokeStyle = this.colours.ink;
        context.lineWidth = 1.5;
        context.stroke();
      }
    }
    context.globalAlpha = 1;
    const chosen = this.forest.members.get(this.chosen);
    for (const [node, stroke] of [[chosen, this.colours.accent], [this.forest.members.get(this.pointed), this.colours.ink]]) {
      if (!node) continue;
      context.beginPath();
      context.arc(...node.at, Math.max(node.radius, 3.5) + 2, 0, 2 * Math.PI);
      context.strokeStyle = stroke;
      context.lineWidth = 2;
      context.stroke();
    }
  }

  paintNames(context, on, focus) {
    context.font = font(11);
    const met = new Set((focus?.member.opponents ?? []).map(({ player, policy }) => `${this.info.population[player]}/${policy}`));
    const worth = (node) => (node === focus ? 3 : met.has(node.key) ? 2 : node.member.probability);
    const wanted = this.nodes.filter((node) => node === focus || met.has(node.key) || (!focus && (node.member.probability >= SMALL || on.view.scale > 46)));
    nameThem(context, wanted.sort((a, b) => worth(b) - worth(a)), { width: on.size.width, height: on.body.height, most: NAMED, colour: this.colours.ink, halo: this.colours.card, above: true, dots: this.nodes.map((node) => ({ at: node.at, radius: Math.max(node.radius, 3.5) })) });
  }

  paintAxis(context, on, scale) {
    const { body } = on, { first, last } = this.forest, step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((k) => k * scale >= 44) ?? 10000;
    context.font = font(12);
    context.fillStyle = css("--soft");
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let k = Math.ceil(first / step) * step; k <= last; k += step) {
      const x = on.toScreen(k - first + 0.5, 0)[0];
      if (x >= body.left && x <= body.left + body.width) context.fillText(String(k), x, body.height + AXIS / 2 + 2);
    }
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(body.left, body.height + 0.5);
    context.lineTo(body.left + body.width, body.height + 0.5);
    context.stroke();
  }
}
