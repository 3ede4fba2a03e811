// Meta-strategies as columns: a mixture is constant within a generation. And who was trained against whom, where a mixture is one policy.

import { announce, h, write } from "./dom.js";
import { percent, whole } from "./charts.js";
import { colours, ramp } from "./colours.js";
import { share } from "./measured.js";
import { shortNames } from "./names.js";
import { fitted, font, scaleKey, stage } from "./stage.js";

const HEIGHT = 240, LEFT = 46, BOTTOM = 38, TOP = 8;  // pixels
const LABEL = 15;  // height of a band that has its name in it
const TOLD = 8;  // policies of a generation that are named
const CELL = 22, TALLEST = 480, HEADER = 12;  // of the table of opponents

// ------------------------------------------------------------------------------------------------------------ meta-strategies

// Of a player: { generation: [n], layers: [{ label, place, values: [n] }] } of the panel "strategies". Returns { set(data), destroy() }.
export function mixture(node) {
  return new Mixture(node);
}

let charts = 0;

class Mixture {
  constructor(node) {
    this.pointed = null;  // place of a generation
    const id = `mixture-told-${(charts += 1)}`;
    this.told = h("p", { class: "unseen", id });
    node.append(this.told);
    const legend = h("div", { class: "key" }, scaleKey("oldest policy", "age-scale", "newest"));
    this.theme();
    this.stage = stage(node, {
      label: "Meta-strategy over generations. Left and right go from one generation to the next; plus, minus and 0 zoom.", describedby: id, legend, flat: true,
      height: () => HEIGHT,
      insets: () => ({ left: LEFT, right: 8, top: TOP, bottom: BOTTOM }),
      world: () => ({ width: this.generation?.length || 1, height: HEIGHT - TOP - BOTTOM }),
      closest: () => 90,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point?.inside ? Math.floor(point.x) : null),
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
  }

  destroy() {
    this.stage.destroy();
  }

  theme() {
    this.colours = colours("ink", "soft", "faint", "line", "grid", "card");
    this.dress();
  }

  dress() {
    this.fills = this.layers?.map(({ place }) => (place === null ? this.colours.line : ramp(place)));
  }

  set({ generation, layers }) {
    this.generation = generation;
    this.layers = layers;
    this.names = shortNames(layers.map(({ label }) => label));
    this.dress();
    // The upper edge of each band in each generation.
    const sums = new Float64Array(generation.length);
    this.edges = layers.map(({ values }) => Float64Array.from(values, (value, k) => (sums[k] += value)));
    const last = generation.length - 1;
    write(this.told, `Generation ${generation[last]}: ${this.mix(last).map(({ label, value }) => `${label} ${share(value)}`).join(", ")}. ${whole(generation.length)} generations are shown.`);
    this.stage.resize();
  }

  // Who is played in a generation, likeliest first.
  mix(at) {
    return this.layers.map(({ label, values }, k) => ({ label, value: values[at], k })).filter(({ value }) => value >= 5e-4).sort((a, b) => b.value - a.value);
  }

  point(at) {
    const inside = at !== null && at >= 0 && at < this.generation.length;
    this.pointed = inside ? at : null;
    if (inside) {
      const mix = this.mix(at), rest = mix.slice(TOLD).reduce((sum, { value }) => sum + value, 0);
      const mark = (k) => h("span", { class: "mark", style: { "--colour": this.fills[k] } });
      this.stage.tip(this.stage.toScreen(at + 1, 0)[0], TOP, [
        h("p", { text: `generation ${this.generation[at]}` }), ...mix.slice(0, TOLD).map(({ label, value, k }) => h("p", null, mark(k), h("b", { text: share(value) }), ` ${label}`)),
        rest > 0 ? h("p", { class: "faint", text: `${share(rest)} in ${mix.length - TOLD} more` }) : "",
      ]);
    } else this.stage.tip(null);
    this.stage.draw();
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key], last = this.generation.length - 1;
    if (event.key === "Escape") this.point(null);
    else if (step !== undefined) {
      const at = Math.min(last, Math.max(0, (this.pointed ?? (step > 0 ? -1 : last + 1)) + step));
      this.stage.show(at + 0.5, 0, 1);
      this.point(at);
      announce(`generation ${this.generation[at]}: ${this.mix(at).slice(0, TOLD).map(({ label, value }) => `${label} ${share(value)}`).join(", ")}`);
    } else return false;
    return true;
  }

  paint(context, on) {
    if (!this.layers?.length) return;
    const { body } = on, from = Math.max(0, Math.floor(on.view.x)), to = Math.min(this.generation.length, Math.ceil(on.view.x + body.width / on.view.scale));
    context.save();
    context.beginPath();
    context.rect(body.left, body.top, body.width, body.height);
    context.clip();
    for (let k = this.layers.length - 1; k >= 0; k--) this.paintLayer(context, on, { k, from, to });
    this.paintNames(context, on, { from, to });
    if (this.pointed !== null) {
      const [x] = on.toScreen(this.pointed, 0);
      context.strokeStyle = this.colours.ink;
      context.lineWidth = 1.5;
      context.strokeRect(x, body.top + 0.75, on.view.scale, body.height - 1.5);
    }
    context.restore();
    this.paintAxes(context, on, { from, to });
  }

  y(body, value) {
    return body.top + body.height * (1 - Math.min(1, value));
  }

  // From the top band down, each over the ones above it: what is left of a band is what the next ones do not cover.
  paintLayer(context, on, { k, from, to }) {
    const { body, view: { scale } } = on, { values } = this.layers[k], edge = this.edges[k], gap = scale > 6 ? 1 : 0;
    context.fillStyle = this.fills[k];
    for (let at = from; at < to; at++) {
      if (!values[at]) continue;
      const [x] = on.toScreen(at, 0), top = this.y(body, edge[at]), bottom = this.y(body, edge[at] - values[at]);
      context.fillRect(x, top, Math.max(1, scale - gap) + (gap ? 0 : 0.5), bottom - top - (gap && bottom - top > 3 ? 0.7 : 0));
    }
  }

  // A band's name where it is highest over the name's width.
  paintNames(context, on, { from, to }) {
    const { body, view: { scale } } = on;
    context.font = font(12);
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.layers.forEach(({ values }, k) => {
      const columns = Math.ceil((context.measureText(this.names[k]).width + 8) / scale);
      let best = null;
      for (let at = from; at + columns <= to; at++) {
        if (values[at] * body.height < LABEL) continue;
        let low = 0, high = 1;
        for (let j = at; j < at + columns && high > low; j++) [low, high] = [Math.max(low, this.edges[k][j] - values[j]), Math.min(high, this.edges[k][j])];
        if ((high - low) * body.height >= LABEL && (!best || high - low > best.height)) best = { at, height: high - low, middle: (low + high) / 2 };
      }
      if (!best) return;
      context.fillStyle = bright(this.fills[k]) ? "#1f2328" : "#ffffff";
      context.fillText(this.names[k], on.toScreen(best.at + columns / 2, 0)[0], this.y(body, best.middle));
    });
  }

  paintAxes(context, on, { from, to }) {
    const { body, view: { scale } } = on;
    context.font = font(12);
    context.fillStyle = this.colours.soft;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of [0, 0.5, 1]) context.fillText(percent(value), body.left - 8, this.y(body, value) + (value === 1 ? 4 : value === 0 ? -4 : 0));
    context.textAlign = "center";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((k) => k * scale >= 40) ?? 1000;
    for (let at = from; at < to; at++) {
      const [x] = on.toScreen(at + 0.5, 0);
      if (at % every === 0 && x >= body.left && x <= body.left + body.width) context.fillText(String(this.generation[at]), x, body.top + body.height + 11);
    }
    context.fillText("generation", body.left + body.width / 2, body.top + body.height + 28);
  }
}

function bright(colour) {
  const [r, g, b] = (/^#(..)(..)(..)$/.exec(colour)?.slice(1).map((two) => parseInt(two, 16))) ?? colour.match(/[\d.]+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140;
}

// ------------------------------------------------------------------------------------------------------------ who was trained against whom

// Of two populations: an entry of "trained" of the panel "strategies", with shares unpacked. Returns { set(data), destroy() }.
export function opponents(node) {
  return new Opponents(node);
}

class Opponents {
  constructor(node) {
    this.pointed = null;  // [row, column]
    const id = `opponents-told-${(charts += 1)}`;
    this.told = h("p", { class: "unseen", id });
    node.append(this.told);
    this.most = h("span");
    const legend = h("div", { class: "key" }, scaleKey("0", "share-scale", this.most), h("span", { text: "of the episodes of training" }));
    this.theme();
    this.stage = stage(node, {
      label: "Who was trained against whom. Arrow keys go from cell to cell; plus, minus and 0 zoom.", describedby: id, legend,
      height: (width) => this.height(width),
      insets: () => this.insets(),
      world: () => ({ width: this.data?.columns.length || 1, height: this.data?.rows.length || 1 }),
      closest: () => 2 * CELL,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point?.inside ? [Math.floor(point.y), Math.floor(point.x)] : null, point),
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
  }

  destroy() {
    this.stage.destroy();
  }

  theme() {
    this.colours = colours("ink", "soft", "line", "grid", "card", "accent");
  }

  set(data) {
    this.data = data;
    const [rows, columns] = [runs(data.row_agents, data.rows), runs(data.column_agents, data.columns)];
    const short = shortNames([...rows, ...columns].map(({ name }) => name));
    this.rows = rows.map((run, k) => ({ ...run, name: short[k] }));
    this.columns = columns.map((run, k) => ({ ...run, name: short[rows.length + k] }));
    write(this.told, `${whole(data.rows.length)} policies in rows, ${whole(data.columns.length)} opponents in columns. The newest, ${data.rows[data.rows.length - 1]}, was trained against ${this.against(data.rows.length - 1)}.`);
    this.largest = Math.max(1e-9, ...data.shares);
    write(this.most, share(this.largest));
    this.stage.resize();
  }

  share(i, j) {
    return this.data.shares[i * this.data.columns.length + j];
  }

  against(i) {
    const some = this.data.columns.map((name, j) => [name, this.share(i, j)]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
    return some.length ? some.slice(0, 6).map(([name, value]) => `${name} ${share(value)}`).join(", ") : "no stored opponent";
  }

  insets() {
    return { left: this.data?.row_agents.some(Boolean) ? 132 : 64, top: 74, right: 1, bottom: HEADER };
  }

  height(width) {
    const { left, top, bottom } = this.insets(), { rows, columns } = this.data ?? { rows: [0], columns: [0] };
    const cell = Math.min(CELL, (width - left - 1) / Math.max(1, columns.length));
    return Math.ceil(Math.min(TALLEST, top + bottom + cell * Math.max(1, rows.length)));
  }

  point(place, point) {
    const inside = place && place[0] >= 0 && place[1] >= 0 && place[0] < this.data.rows.length && place[1] < this.data.columns.length;
    this.pointed = inside ? place : null;
    if (inside) {
      const [i, j] = place, [x, y] = point ? [point.screenX, point.screenY] : this.stage.toScreen(j + 1, i + 1);
      this.stage.tip(x, y, [h("p", { text: `${this.data.rows[i]} trained against ${this.data.columns[j]}` }), h("p", null, h("b", { text: share(this.share(i, j)) }))]);
    } else this.stage.tip(null);
    this.stage.draw();
  }

  key(event) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") this.point(null);
    else if (move) {
      const last = [this.data.rows.length - 1, this.data.columns.length - 1];
      const [i, j] = this.pointed ? this.pointed.map((at, k) => Math.min(last[k], Math.max(0, at + move[k]))) : [last[0], 0];
      this.stage.show(j + 0.5, i + 0.5, 0.5);
      this.point([i, j]);
      announce(`${this.data.rows[i]} trained against ${this.data.columns[j]}: ${share(this.share(i, j))}`);
    } else return false;
    return true;
  }

  paint(context, on) {
    if (!this.data?.rows.length) return;
    const { body, view: { scale } } = on, { rows, columns } = this.data;
    context.save();
    context.beginPath();
    context.rect(body.left, body.top, body.width, body.height);
    context.clip();
    const [x0, y0] = on.toScreen(0, 0);
    context.fillStyle = this.colours.grid;
    context.fillRect(x0, y0, columns.length * scale, rows.length * scale);
    context.fillStyle = this.colours.accent;
    for (let i = 0; i < rows.length; i++) {
      for (let j = 0; j < columns.length; j++) {
        const value = this.share(i, j);
        if (value <= 0) continue;
        context.globalAlpha = 0.12 + 0.88 * Math.sqrt(value / this.largest);
        context.fillRect(x0 + j * scale, y0 + i * scale, scale, scale);
      }
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.card;
    context.lineWidth = 2;
    context.beginPath();
    for (const { first } of this.rows) line(context, x0, y0 + first * scale, x0 + columns.length * scale, y0 + first * scale);
    for (const { first } of this.columns) line(context, x0 + first * scale, y0, x0 + first * scale, y0 + rows.length * scale);
    context.stroke();
    if (this.pointed) {
      context.strokeStyle = this.colours.ink;
      context.strokeRect(x0 + this.pointed[1] * scale, y0 + this.pointed[0] * scale, scale, scale);
    }
    context.restore();
    this.paintHeaders(context, on);
  }

  // The name of each agent beside its block; where there are no agents, of a policy wherever there is room.
  paintHeaders(context, on) {
    const { body, view: { scale } } = on, room = 15;
    context.font = font(12);
    context.fillStyle = this.colours.soft;
    context.textBaseline = "middle";
    context.textAlign = "right";
    let last = -Infinity;
    for (const { first, size, name } of this.rows) {
      const y = on.toScreen(0, first + size / 2)[1];
      if (y < body.top || y > body.top + body.height || y - last < room) continue;
      context.fillText(fitted(context, name, body.left - 12), body.left - 8, y);
      last = y;
    }
    last = -Infinity;
    for (const { first, size, name } of this.columns) {
      const x = on.toScreen(first + size / 2, 0)[0];
      if (x < body.left || x > body.left + body.width || x - last < room) continue;
      const across = size * scale >= context.measureText(name).width + 8;
      context.save();
      context.translate(x, body.top - 8);
      if (across) context.textAlign = "center";
      else {
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
      }
      context.fillText(across ? name : fitted(context, name, body.top - 12), 0, across ? -4 : 0);
      context.restore();
      last = x;
    }
  }
}

// Places with one agent after another: [{ first, size, name }]; those without an agent are each by themselves.
function runs(agents, names) {
  const found = [];
  agents.forEach((agent, k) => {
    const last = found[found.length - 1];
    if (agent && last?.agent === agent) last.size += 1;
    else found.push({ agent, name: agent || names[k], first: k, size: 1 });
  });
  return found;
}

function line(context, x0, y0, x1, y1) {
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
}
