// Charts of lines, bands and stacked areas (uPlot), tables that sort, and how numbers are written.
//
// lines() draws one chart and keeps it: set(data) changes it in place, so that the eye, the pointer and the scroll stay where they are.

import uPlot from "./uplot.js";
import { clear, h, write } from "./dom.js";
import { colour, css, faded, ontheme, ramp } from "./colours.js";

export { colour, css, ontheme, ramp };

// ------------------------------------------------------------------------------------------------------------ numbers

const MINUS = "\u2212";

// 0.1234, 12.35, 12,345, 1.2e−7: four digits that matter, a real minus; "–" where there is none.
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(1).replace("e+", "e").replaceAll("-", MINUS);
  if (Number.isInteger(value) && size >= 1000) return whole(value);
  const places = size >= 1000 ? 0 : Math.max(0, digits - 1 - Math.max(0, Math.floor(Math.log10(size || 1))));
  const text = size >= 1000 ? whole(Math.round(value)) : Number.isInteger(value) ? String(value) : value.toFixed(places);
  return text.replace("-", MINUS);
}

export function whole(value) {
  if (value === null || value === undefined) return "–";
  return Math.round(value).toLocaleString("en-US").replace("-", MINUS);
}

export const percent = (share, places = 0) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(places)}%`);

// 1.2 s, 12 s, 4 min 5 s, 2 h 3 min, 3 d 4 h
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const all = Math.round(seconds), minutes = Math.floor(all / 60), hours = Math.floor(minutes / 60);
  if (minutes === 0) return `${all} s`;
  if (hours === 0) return `${minutes} min ${all % 60} s`;
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// ------------------------------------------------------------------------------------------------------------ lines

const FEW = 3;  // values from which on a line needs no points
const IN_LEGEND = 12;  // more have no legend: the pointer names them
const IN_TIP = 9;

// data: { x: [n], series: [{ name, values: [n], x?: [m] (its own, then values: [m]), low?, high?: [n], colour?: text or () => text, dashed?, width? }],
//   xTitle, yTitle, log? (y), logX?, yRange?: [low, high], stacked? (shares from 0 to 1, one band for each series), whole? (x counts whole things), height? (pixels),
//   format? (of y, a function), note? (added to what a screen reader is told) }.   null in values is a gap.
// Returns { set(data), destroy() }.
export function lines(node, data) {
  const chart = new Lines(node);
  chart.set(data);
  return { set: (next) => chart.set(next), destroy: () => chart.destroy() };
}

class Lines {
  constructor(node) {
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img", on: { keydown: (event) => this.key(event), blur: () => this.point(null) } });
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("ul", { class: "legend" });
    this.told = h("div", { class: "unseen", "aria-live": "polite" });
    this.node = node;
    this.hidden = new Set();
    this.uplot = null;
    clear(node).classList.add("chart");
    node.append(this.legend, this.plot, this.tip, this.told);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.plot);
    this.untheme = ontheme(() => this.build());
  }

  set(data) {
    const before = this.data;
    this.data = data;
    this.table = tabled(data);
    this.plot.setAttribute("aria-label", summary(data));
    if (before && this.uplot && shape(before) === shape(data)) {
      this.uplot.setData(this.columns());
      return;
    }
    this.build();
  }

  destroy() {
    this.sizes.disconnect();
    this.untheme();
    this.uplot?.destroy();
    this.uplot = null;
  }

  fit() {
    const width = Math.floor(this.plot.clientWidth);
    if (!this.uplot) return this.build();
    if (width && width !== this.uplot.width) this.uplot.setSize({ width, height: this.height() });
  }

  height() { return this.data.height ?? (window.innerWidth < 640 ? 240 : 280); }

  // What is drawn: x, then of each series its values and, where it has them, its edges.
  columns() {
    const { x, series } = this.table;
    const { log, stacked } = this.data;
    if (stacked) return [x, ...stack(series.map((one) => one.values), series.map((_, k) => !this.hidden.has(series[k].name)))];
    const drawn = (values) => (log ? values.map((v) => (v !== null && v > 0 ? v : null)) : values);
    return [x, ...series.flatMap((one) => (one.low ? [drawn(one.low), drawn(one.high), drawn(one.values)] : [drawn(one.values)]))];
  }

  build() {
    if (!this.data) return;
    const width = Math.floor(this.plot.clientWidth);
    if (!width) return;  // not laid out yet: the observer comes back
    this.uplot?.destroy();
    this.paintLegend();
    this.uplot = new uPlot(this.options(width), this.columns(), this.plot);
  }

  options(width) {
    const { xTitle, yTitle, log, logX, stacked, format } = this.data;
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: css("--soft"), font, labelFont: font, grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 5 }, labelSize: 20, gap: 4 };
    const few = this.table.x.length <= 6;
    return {
      width, height: this.height(), padding: [10, 20, 0, 0],
      legend: { show: false },
      cursor: { x: true, y: false, points: { show: !stacked, size: 6 }, drag: { x: false, y: false }, focus: { prox: 24 } },
      focus: { alpha: 1 },
      scales: { x: { time: false, distr: logX ? 3 : 1, range: () => this.xRange() }, y: this.yScale(log, stacked) },
      axes: [
        { ...axis, label: xTitle, size: 32, space: 60, values: (_, ticks) => ticks.map((v) => (v === null ? "" : short(v))), incrs: this.data.whole ? WHOLE : undefined, ...(logX ? sparse(axis, "x") : {}) },
        { ...axis, label: yTitle, size: (_, values) => Math.max(40, 16 + Math.max(0, ...(values ?? []).map((text) => wide(text, font)))), space: stacked ? 50 : 34, values: (_, ticks) => ticks.map((v) => (v === null ? "" : stacked ? percent(v) : format ? format(v) : short(v))), ...(log ? sparse(axis, "y") : {}) },
      ],
      series: [{}, ...this.lines(few)],
      bands: this.bands(),
      hooks: { setCursor: [(u) => this.cursor(u)] },
    };
  }

  // Of one place, something around it.
  xRange() {
    const { x } = this.table, low = x[0] ?? 0, high = x[x.length - 1] ?? 1;
    if (low !== high) return [low, high];
    return this.data.logX ? [low / 2, high * 2] : this.data.whole || low === 0 ? [low - 1, low + 1] : [low - Math.abs(low), low + Math.abs(low)];
  }

  yScale(log, stacked) {
    if (stacked) return { range: [0, 1] };
    if (this.data.yRange) return { distr: log ? 3 : 1, range: () => this.data.yRange };
    if (log) return { distr: 3 };
    return { range: (_, low, high) => padded(low, high) };
  }

  lines(few) {
    const { stacked } = this.data;
    return this.table.series.flatMap((one, k) => {
      const stroke = this.colourOf(k), show = !this.hidden.has(one.name) || Boolean(stacked);
      if (stacked) return [{ label: one.name, stroke: css("--card"), width: this.table.x.length > 80 ? 0 : 0.7, fill: stroke, points: { show: false }, show }];
      const known = one.values.reduce((n, v) => n + (v !== null), 0);
      const main = {
        label: one.name, stroke, width: one.width ?? (this.table.series.length > 8 ? 1.25 : 2), dash: one.dashed ? [5, 4] : undefined, spanGaps: Boolean(one.x),
        points: { show: few || known < FEW, size: 6, fill: stroke, stroke }, show,
      };
      const edge = { label: "", stroke: "transparent", width: 0, points: { show: false }, spanGaps: Boolean(one.x), show };
      return one.low ? [edge, { ...edge }, main] : [main];
    });
  }

  bands() {
    if (this.data.stacked) return this.table.series.slice(1).map((_, k) => ({ series: [k + 2, k + 1] }));
    let at = 1;
    return this.table.series.flatMap((one, k) => {
      const first = at;
      at += one.low ? 3 : 1;
      return one.low ? [{ series: [first + 1, first], fill: faded(this.colourOf(k), 0.16) }] : [];
    });
  }

  colourOf(k) {
    const { colour: own } = this.table.series[k];
    return typeof own === "function" ? own() : own ?? colour(k, this.table.series.length);
  }

  paintLegend() {
    const { series } = this.table;
    const none = series.length < 2 || series.length > IN_LEGEND;
    this.legend.hidden = none;
    clear(this.legend).append(...(none ? [] : series.map((one, k) => {
      const flip = (event) => {
        if (!this.hidden.delete(one.name)) this.hidden.add(one.name);
        event.currentTarget.setAttribute("aria-pressed", String(!this.hidden.has(one.name)));
        this.rebuild();
      };
      const mark = h("span", { class: one.dashed ? "mark dashed" : "mark", style: { "--colour": this.colourOf(k) } });
      return h("li", null, h("button", { type: "button", title: "Show or hide", "aria-pressed": String(!this.hidden.has(one.name)), on: { click: flip } }, mark, one.name));
    })));
  }

  rebuild() {
    const width = Math.floor(this.plot.clientWidth);
    this.uplot?.destroy();
    this.uplot = new uPlot(this.options(width), this.columns(), this.plot);
  }

  // ---- pointing: by the pointer, or by the arrow keys

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") return this.point(null);
    if (step === undefined || !this.uplot) return undefined;
    event.preventDefault();
    const last = this.table.x.length - 1;
    const at = this.uplot.cursor.idx ?? (step > 0 ? -1 : last + 1);
    return this.point(Math.min(last, Math.max(0, step === Infinity ? last : step === -Infinity ? 0 : at + step)), true);
  }

  point(at, spoken = false) {
    if (!this.uplot) return;
    if (at === null) return void this.uplot.setCursor({ left: -10, top: -10 });
    this.uplot.setCursor({ left: this.uplot.valToPos(this.table.x[at], "x"), top: 10 });
    if (spoken) write(this.told, [`${this.data.xTitle ?? ""} ${short(this.table.told[at])}`, ...this.rows(at).map(({ name, text }) => `${name} ${text}`)].join(", "));
  }

  rows(at) {
    const { series } = this.table;
    const format = this.data.format ?? (this.data.stacked ? (v) => percent(v, 1) : number);
    const rows = series.map((one, k) => ({ name: one.name, value: at === null ? null : one.values[at] ?? null, low: one.low?.[at] ?? null, high: one.high?.[at] ?? null, k }))
      .filter((row) => row.value !== null && !this.hidden.has(row.name) && !(this.data.stacked && row.value < 5e-4));
    if (series.length > IN_TIP) rows.sort((a, b) => b.value - a.value);
    return rows.slice(0, IN_TIP).map((row) => ({ ...row, text: row.low === null ? format(row.value) : `${format(row.value)} (${format(row.low)} to ${format(row.high)})` }));
  }

  cursor(u) {
    const at = u.cursor.left < 0 ? null : this.near(u.cursor.idx);
    const rows = at === null || at === undefined ? [] : this.rows(at);
    this.tip.hidden = !rows.length;
    if (!rows.length) return;
    clear(this.tip).append(
      h("p", { text: `${this.data.xTitle ?? ""} ${short(this.table.told[at])}` }),
      ...rows.map((row) => h("p", null, h("span", { class: "mark", style: { "--colour": this.colourOf(row.k) } }), h("b", { text: row.text }), ` ${row.name}`)),
    );
    const left = this.plot.offsetLeft + u.over.offsetLeft + u.valToPos(this.table.x[at], "x");
    const right = left + this.tip.offsetWidth + 14 > this.node.clientWidth;
    this.tip.style.left = `${Math.max(0, right ? left - this.tip.offsetWidth - 12 : left + 12)}px`;
    this.tip.style.top = `${this.plot.offsetTop + 12}px`;
  }

  // Where series have their own x, few of them have a value at one place: the nearest place that has one.
  near(at) {
    if (at === null || at === undefined) return null;
    const has = (k) => k >= 0 && k < this.table.x.length && this.table.series.some((one) => (one.values[k] ?? null) !== null);
    for (let away = 0; away < 50; away++) {
      if (has(at - away)) return at - away;
      if (has(at + away)) return at + away;
    }
    return null;
  }
}

const WHOLE = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10000, 20000, 25000, 50000, 100000, 200000, 250000, 500000, 1e6, 2e6, 5e6, 1e7];

const ruler = document.createElement("canvas").getContext("2d");

// Of a text, in pixels.
function wide(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

// Two with the same shape differ in their numbers only.
const shape = (data) => JSON.stringify([
  data.xTitle, data.yTitle, data.log, data.logX, data.stacked, data.height, data.whole, data.x?.length <= 6, data.x?.length === 1,
  data.series.map((one) => [one.name, Boolean(one.low), Boolean(one.x), one.dashed, typeof one.colour === "function" ? "f" : one.colour, one.values.length < FEW]),
]);

// All series over one x: where some have their own, over all of their places together.
function tabled(data) {
  if (data.stacked && data.x.length === 1) return widened(data);
  if (!data.series.some((one) => one.x)) return { x: data.x, told: data.x, series: data.series };
  const parts = data.series.map((one) => {
    const x = one.x ?? data.x, known = x.map((v, k) => [v, k]).filter(([v]) => v !== null && v !== undefined).sort((a, b) => a[0] - b[0]);
    const apart = known.filter(([v], k) => k === known.length - 1 || v !== known[k + 1][0]);  // of two at one place the later
    const take = (values) => apart.map(([, k]) => values[k] ?? null);
    return [apart.map(([v]) => v), take(one.values), ...(one.low ? [take(one.low), take(one.high)] : [])];
  });
  const [x, ...columns] = uPlot.join(parts);
  let at = 0;
  const next = () => columns[at++].map((v) => v ?? null);
  const series = data.series.map((one) => ({ ...one, x: true, values: next(), ...(one.low ? { low: next(), high: next() } : {}) }));
  return { x, told: x, series };
}

// An area over one place has no width: it gets some.
function widened({ x: [place], series }) {
  const side = 0.4 * (Math.abs(place) || 1);
  return { x: [place - side, place + side], told: [place, place], series: series.map((one) => ({ ...one, values: [one.values[0], one.values[0]] })) };
}

// Running sums, highest first as uPlot wants its bands: the top line of every layer.
function stack(layers, on) {
  const sums = [];
  let below = null;
  layers.forEach((values, k) => {
    const sum = values.map((v, i) => (below ? below[i] : 0) + (on[k] ? v ?? 0 : 0));
    sums.push(sum);
    below = sum;
  });
  return sums;
}

function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  const room = 0.06 * (high - low);
  const bottom = low >= 0 && low < 0.4 * high ? 0 : low - room;  // zero is worth showing where it is near
  return [bottom, high <= 0 && high > 0.4 * low ? 0 : high + room];
}

// Of a logarithmic axis: the powers of ten that there is room for, and 2 and 5 times them where few powers are seen.
function decades(scale, places, most) {
  const seen = Math.log10(scale.max / scale.min), every = Math.max(1, Math.ceil(seen / most));
  const good = seen > 4 ? [1] : seen > 2 ? [1, 3] : [1, 2, 5];
  return places.map((v) => {
    const power = Math.floor(Math.log10(v) + 1e-9);
    return good.includes(Math.round(v / 10 ** power)) && power % every === 0 ? v : null;
  });
}

function sparse(axis, scale) {
  const filter = (u, places) => decades(u.scales[scale], places, scale === "x" ? u.bbox.width / devicePixelRatio / 60 : u.bbox.height / devicePixelRatio / 24);
  return { filter, grid: { ...axis.grid, filter }, ticks: { ...axis.ticks, filter } };
}

// Round places of an axis, at most about `most` of them.
export function ticks(low, high, most = 5) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

// As it stands beside an axis: no more digits than it needs.
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return value.toExponential(0).replace("e+", "e").replace("-", MINUS);
  if (size >= 1e6) return `${trimmed(value / 1e6)} M`.replace("-", MINUS);
  if (size >= 1e4) return `${trimmed(value / 1e3)} k`.replace("-", MINUS);
  if (size !== 0 && size < 1e-3) return Number(value.toPrecision(3)).toExponential().replaceAll("-", MINUS);
  return trimmed(value).replace("-", MINUS);
}

const trimmed = (value) => String(Number(value.toPrecision(6)));

// "NashConv over generation: from 4 at 0 to 0.21 at 12, between 0.19 and 4."
function summary({ x, series, xTitle, yTitle, note }) {
  const told = series.slice(0, 6).map((one) => {
    const places = one.x ?? x, known = one.values.map((v, k) => [v, places[k]]).filter(([v]) => v !== null && v !== undefined);
    if (!known.length) return `${one.name}: no values`;
    const values = known.map(([v]) => v), [first, last] = [known[0], known[known.length - 1]];
    const between = `between ${number(Math.min(...values))} and ${number(Math.max(...values))}`;
    return known.length === 1 ? `${one.name}: ${number(first[0])} at ${short(first[1])}` : `${one.name}: from ${number(first[0])} at ${short(first[1])} to ${number(last[0])} at ${short(last[1])}, ${between}`;
  });
  const more = series.length > 6 ? ` And ${series.length - 6} more.` : "";
  return `Chart of ${yTitle ?? series.map((one) => one.name).join(", ")} over ${xTitle ?? "x"}. ${told.join(". ")}.${more}${note ? ` ${note}` : ""} Arrow keys move along it.`;
}

// ------------------------------------------------------------------------------------------------------------ tables

// What says the same stays: the focus may be in it.
function put(cell, shown) {
  const now = cell.childNodes.length === 1 ? cell.firstChild : null;
  if (now !== shown && !(now && now.isEqualNode(shown))) cell.replaceChildren(shown);
}

// Makes these the children of a node, and moves as few as it can: what is moved loses the focus.
function arrange(node, elements) {
  const wanted = new Set(elements);
  for (const child of [...node.children]) if (!wanted.has(child)) child.remove();
  elements.forEach((element, k) => { if (node.children[k] !== element) node.insertBefore(element, node.children[k] ?? null); });
}

// A table whose headings sort. columns: [{ key, title, text? (left-aligned), hint?, sorts? (false: not by this one), format?(value, row, place) -> text or node, value?(row),
// only?(rows) (whether the column is worth its room), unseen? (its title is for screen readers alone) }];
// rows: objects; sort: { key, down } or null; limit: rows shown before "Show all"; label: its name for screen readers;
// id(row): what a row is known by, so that an update keeps its element, and the focus in it; under?(row): rows that stand below it, sorted alike;
// onsort?(sort): called when a heading was pressed. Returns { set(rows), sort }.
export function table(node, { columns, rows, sort = null, limit = 25, label = "", id = null, under = null, onsort = null }) {
  const state = { rows, sort, all: false };
  const head = h("tr"), body = h("tbody");
  const grid = h("table", null, h("thead", null, head), body);
  const more = h("button", { type: "button", class: "more", on: { click: () => { state.all = true; draw(); } } });
  clear(node).append(h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label || "Table" }, grid), more);
  const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);
  const kept = new Map();  // id -> { element, cells }

  for (const column of columns) {
    const cell = h("th", { scope: "col", class: column.text ? "text" : null, title: column.hint });
    const press = () => {
      const current = state.sort;
      state.sort = { key: column.key, down: current?.key === column.key ? !current.down : !column.text };
      draw();
      onsort?.(state.sort);
    };
    cell.append(column.unseen ? h("span", { class: "unseen", text: column.title }) : column.sorts === false ? column.title : h("button", { type: "button", text: column.title, on: { click: press } }));
    cell.dataset.key = column.key;
    head.append(cell);
  }

  function ordered(rows) {
    const sorted = sortedRows(rows);
    return under ? sorted.flatMap((row) => [row, ...sortedRows(under(row))]) : sorted;
  }

  function sortedRows(rows) {
    const column = columns.find(({ key }) => key === state.sort?.key);
    if (!column) return rows;
    const missing = (v) => v === null || v === undefined || Number.isNaN(v);
    const by = (a, b) => {
      const [left, right] = [valueOf(column, a), valueOf(column, b)];
      if (missing(left) || missing(right)) return missing(left) - missing(right);  // last, whichever way
      const order = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), "en", { numeric: true });
      return state.sort.down ? -order : order;
    };
    return [...rows].sort(by);
  }

  function line(row, place) {
    const key = id ? id(row) : null;
    const made = key !== null && kept.has(key) ? kept.get(key) : { element: h("tr"), cells: columns.map((column) => h("td", { class: column.text ? "text" : null, dataset: { key: column.key, title: column.title } })) };
    if (!made.element.childElementCount) made.element.append(...made.cells);
    columns.forEach((column, k) => {
      made.cells[k].hidden = head.children[k].hidden;
      const value = valueOf(column, row);
      const shown = column.format ? column.format(value, row, place) : column.text ? String(value ?? "–") : number(value);
      if (shown instanceof Node) put(made.cells[k], shown);
      else write(made.cells[k], String(shown));
    });
    if (key !== null) kept.set(key, made);
    return made.element;
  }

  function draw() {
    columns.forEach((column, k) => { head.children[k].hidden = Boolean(column.only && !column.only(state.rows)); });
    for (const cell of head.children) {
      if (cell.dataset.key === state.sort?.key) cell.setAttribute("aria-sort", state.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const all = ordered(state.rows), shown = state.all ? all : all.slice(0, limit);
    if (id) {
      const names = new Set(all.map(id));
      for (const name of kept.keys()) if (!names.has(name)) kept.delete(name);
    }
    const elements = shown.map(line);
    arrange(body, elements);
    more.hidden = all.length <= limit || state.all;
    write(more, `Show all ${whole(all.length)}`);
  }

  draw();
  return { set(next) { state.rows = next; draw(); }, get sort() { return state.sort; } };
}
