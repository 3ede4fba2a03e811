// Charts of lines, bands and stacked areas (uPlot), tables that sort, and how numbers are written.
//
// lines() draws one chart and keeps it: set(data) changes it in place, so that the eye, the pointer and the scroll stay where they are.

import uPlot from "./uplot.js";
import { axis, drawnPlaces, logTicks, nearest, smoothed } from "./axes.js";
import { clear, h, write } from "./dom.js";
import { saveCsv, savePng } from "./download.js";
import { legendItems, View } from "./view.js";
import { colour, css, faded, ontheme } from "./colours.js";

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
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", MINUS);
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
const IN_TIP = 12;
const DRAG = 6;  // pixels from which on a drag zooms
const APART = 0.03;  // of the axis: a value that is farther from the cursor says where it stands

// data: { x: [n], series: [{ name, values: [n], x?: [m] (its own, then values: [m]), low?, high?: [n], tail?: { x, values } (provisional points after them), colour?: text or () => text, dashed?, width? }],
//   xTitle, yTitle, log? (y), logX?, yRange?: [low, high] (shown at least), frame?: [low, high] (shown, and of bands no more than that), share? (y is a probability), stacked? (shares from 0 to 1, one band for each series), whole? (x counts whole things),
//   height? (pixels), format? (of y, a function), note? (added to what a screen reader is told), legend? (false: another place has it), bare? (no titles of axes), smooths? (false: smoothing leaves it as it is) }.
//   null in values is a gap.
// view: shared by charts that belong together (view.js). Dragging zooms, a double click shows all again.
// Returns { set(data), destroy() }.
export function lines(node, data, view = new View()) {
  const chart = new Lines(node, view);
  chart.set(data);
  return { set: (next) => chart.set(next), destroy: () => chart.destroy() };
}

class Lines {
  constructor(node, view) {
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img", on: { keydown: (event) => this.key(event), blur: () => this.point(null), dblclick: () => view.set({ zoom: null }) } });
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("ul", { class: "legend" });
    this.note = h("p", { class: "hint", hidden: true });
    this.spoken = h("div", { class: "unseen", "aria-live": "polite" });
    this.tools = h("div", { class: "plot-tools" },
      h("button", { type: "button", text: "PNG", on: { click: () => this.png() } }), h("button", { type: "button", text: "CSV", on: { click: () => this.csv() } }));
    this.node = node;
    this.view = view;
    this.uplot = null;
    view.charts.add(this);
    clear(node).classList.add("chart");
    node.append(this.legend, this.plot, this.tools, this.tip, this.note, this.spoken);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.plot);
    this.untheme = ontheme(() => this.build());
  }

  set(data) {
    const before = this.data;
    this.data = data;
    this.series = data.stacked && data.x.length === 1 ? widened(data) : data.series.map((one) => placed(one, data.x));
    this.plot.setAttribute("aria-label", summary(data));
    for (const button of this.tools.children) button.setAttribute("aria-label", `${button.textContent} of ${data.yTitle ?? "this chart"}`);
    if (before && this.uplot && shape(before) === shape(data)) this.refill();
    else this.build();
  }

  destroy() {
    this.sizes.disconnect();
    this.untheme();
    this.view.charts.delete(this);
    this.uplot?.destroy();
    this.uplot = null;
  }

  fit() {
    const width = Math.floor(this.plot.clientWidth);
    if (!this.uplot) return this.build();
    if (!width || width === this.uplot.width) return undefined;
    this.uplot.setSize({ width, height: this.height() });
    return this.refill();
  }

  // After a change of the view: anew where lines come or go, else in place.
  redraw() {
    if (!this.uplot) return;
    if (this.kind !== this.kindNow()) this.build();
    else this.refill();
    this.paintLegend();
  }

  kindNow() { return JSON.stringify([this.log(), this.smoothing() > 0, [...this.view.hidden]]); }

  refill() {
    this.uplot.setData(this.columns());
  }

  height() { return this.data.height ?? (window.innerWidth < 640 ? 240 : 280); }
  log() { return !this.data.stacked && !this.data.share && (this.view.log ?? this.data.log ?? false); }
  smoothing() { return this.data.stacked || this.data.smooths === false ? 0 : this.view.smoothing; }
  shows(one) { return !this.view.hidden.has(one.name); }

  // What is drawn of a series, in this order: the edges of its band, its values as they are (faint, below smoothed ones), its line, its tail.
  strands(one) {
    const weight = this.smoothing(), even = (values) => (weight ? smoothed(values, weight) : values);
    return [
      ...(one.low ? [{ role: "edge", values: even(one.low) }, { role: "edge", values: even(one.high) }] : []),
      ...(weight ? [{ role: "raw", values: one.values }] : []),
      { role: "line", values: even(one.values) },
      ...(one.tail ? [{ role: "tail", x: one.tail.x, values: one.tail.values }] : []),
    ];
  }

  // [x, ...strands] as uPlot draws them; of what is zoomed into, with no more points than there is room for. Sets the range of y.
  columns() {
    const { stacked } = this.data;
    if (stacked) {
      this.y = { low: 0, high: 1, floor: null };
      return [this.series[0].x, ...stack(this.series.map((one) => one.values), this.series.map((one) => this.shows(one)))];
    }
    const range = this.xRange(), room = Math.max(100, this.plot.clientWidth || 0);
    const tables = [], inside = [...(this.data.yRange ?? this.data.frame ?? [])];
    for (const one of this.series) {
      const strands = this.strands(one), own = strands.filter(({ role }) => role !== "tail");
      const places = drawnPlaces(one.x, own[own.length - 1].values, range, room), x = places.map((k) => one.x[k]);
      const cut = own.map(({ values }) => places.map((k) => values[k] ?? null));
      const fitted = this.data.frame ? cut.filter((_, k) => own[k].role !== "edge") : cut;
      tables.push([x, ...cut]);
      const tail = strands.find(({ role }) => role === "tail");
      if (tail) tables.push([tail.x, tail.values]);
      if (!this.shows(one)) continue;
      for (const [at, ...columns] of tail ? [[x, ...fitted], [tail.x, tail.values]] : [[x, ...fitted]]) {
        at.forEach((v, k) => { if (v >= range[0] && v <= range[1]) for (const column of columns) inside.push(column[k]); });
      }
    }
    this.y = axis(inside, { log: this.log(), share: this.data.share });
    this.remark();
    const { floor } = this.y;
    const drawn = floor === null ? tables : tables.map(([x, ...columns]) => [x, ...columns.map((values) => values.map((v) => (v === null ? null : Math.max(v, floor))))]);
    return drawn.length ? uPlot.join(drawn) : [[]];
  }

  // Of values that a logarithmic axis has no place for, and of bands that are cut.
  remark() {
    const names = this.y.floor === null ? [] : this.series.filter((one) => this.shows(one) && one.values.some((v) => v !== null && v <= 0)).map(({ name }) => name);
    const { frame } = this.data, outside = (v) => v !== null && (v < frame[0] || v > frame[1]);
    const notes = [
      ...(names.length ? [`Values of 0 or below are drawn at the lower edge of the logarithmic axis: ${names.slice(0, 6).join(", ")}${names.length > 6 ? " and others" : ""}.`] : []),
      ...(frame && this.series.some((one) => one.low && [...one.low, ...one.high].some(outside)) ? ["The interval reaches beyond the chart."] : []),
    ];
    this.note.hidden = !notes.length;
    write(this.note, notes.join(" "));
  }

  build() {
    if (!this.data) return;
    const width = Math.floor(this.plot.clientWidth);
    if (!width) return;  // not laid out yet: the observer comes back
    this.uplot?.destroy();
    this.kind = this.kindNow();
    this.paintLegend();
    const columns = this.columns();
    this.uplot = new uPlot(this.options(width), columns, this.plot);
  }

  options(width) {
    const { xTitle, yTitle, logX, stacked, bare, whole: counts } = this.data, log = this.log();
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const plain = { stroke: css("--soft"), font, labelFont: font, grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 5 }, labelSize: 20, gap: 4 };
    const powers = (room) => ({ splits: (u, which, low, high) => logTicks(low, high, u.bbox[which ? "height" : "width"] / devicePixelRatio / room), filter: (_, places) => places });
    const y = (_, places) => places.map((v) => (v === null ? "" : stacked ? percent(v) : this.data.share ? percent(v, places[1] < 0.01 ? 1 : 0) : this.data.format ? this.data.format(v) : short(v)));
    return {
      width, height: this.height(), padding: [10, 20, 0, 0],
      legend: { show: false },
      cursor: { x: true, y: false, points: { ...(stacked ? { show: false } : {}), size: 7, fill: (u, which) => u.series[which].stroke(u, which) }, drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, dataIdx: (u, which, at) => known(u.data[which], at), bind: { dblclick: () => null } },
      focus: { alpha: 1 },
      scales: { x: { time: false, distr: logX ? 3 : 1, range: () => this.xRange() }, y: { distr: log ? 3 : 1, range: () => [this.y.low, this.y.high] } },
      axes: [
        { ...plain, label: bare ? undefined : xTitle, size: 32, space: 60, values: (_, places) => places.map((v) => (v === null ? "" : short(v))), incrs: counts ? WHOLE : undefined, ...(logX ? powers(60) : {}) },
        { ...plain, label: bare ? undefined : yTitle, size: (_, texts) => Math.max(40, 16 + Math.max(0, ...(texts ?? []).map((text) => wide(text, font)))), space: stacked ? 50 : 34, values: y, ...(log ? powers(24) : {}) },
      ],
      series: [{}, ...this.drawn()],
      bands: this.bands(),
      hooks: { setCursor: [() => this.cursor()], setSelect: [(u) => this.select(u)] },
    };
  }

  // What there is along x, from all series; of one place, something around it.
  extent() {
    const ends = this.series.flatMap((one) => [one.x[0], one.x[one.x.length - 1], one.tail?.x[one.tail.x.length - 1]]).filter((v) => v !== undefined);
    const [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    if (low !== high) return [low, high];
    if (this.data.logX) return [low / 2, high * 2];
    if (this.data.whole) return [low - 0.5, low + 0.5];  // the only tick is the place itself
    return low === 0 ? [-1, 1] : [low - Math.abs(low), low + Math.abs(low)];
  }

  xRange() {
    const all = this.extent(), { zoom } = this.view;
    return zoom && zoom[1] > all[0] && zoom[0] < all[1] ? zoom : all;
  }

  drawn() {
    const { stacked } = this.data, many = this.series.length > 8;
    return this.series.flatMap((one, k) => {
      const stroke = this.colourOf(k), show = this.shows(one);
      if (stacked) return [{ label: one.name, stroke: css("--card"), width: one.x.length > 80 ? 0 : 0.7, fill: stroke, points: { show: false }, show: true }];
      const dots = one.x.length <= 6 || one.values.reduce((n, v) => n + (v !== null), 0) < FEW;
      const line = { label: one.name, stroke, width: one.width ?? (many ? 1.25 : 2), dash: one.dashed ? [5, 4] : undefined, points: { show: dots, size: 6, fill: stroke, stroke }, show };
      const none = { show: false };
      return this.strands(one).map(({ role }) => ({
        edge: { label: "", stroke: "transparent", width: 0, points: none, show },
        raw: { label: "", stroke: faded(stroke, 0.25), width: 1, points: none, show },
        line,
        tail: { ...line, dash: [3, 3], points: { show: one.tail?.x.length < FEW, size: 6, stroke } },
      })[role]);
    });
  }

  bands() {
    if (this.data.stacked) return this.series.slice(1).map((_, k) => ({ series: [k + 2, k + 1] }));
    let at = 1;
    return this.series.flatMap((one, k) => {
      const first = at;
      at += this.strands(one).length;
      return one.low ? [{ series: [first + 1, first], fill: faded(this.colourOf(k), 0.16) }] : [];
    });
  }

  colourOf(k) {
    const { colour: own } = this.series[k];
    return typeof own === "function" ? own() : own ?? colour(k, this.series.length);
  }

  paintLegend() {
    const none = this.data.legend === false || this.series.length < 2 || this.series.length > IN_LEGEND;
    this.legend.hidden = none;
    const key = JSON.stringify([none, [...this.view.hidden], this.series.map((one, k) => [one.name, this.colourOf(k)])]);
    if (key === this.painted) return;
    this.painted = key;
    const focused = [...this.legend.querySelectorAll("button")].indexOf(document.activeElement);
    clear(this.legend).append(...(none ? [] : legendItems(this.series.map(({ name, dashed }, k) => ({ name, dashed, colour: this.colourOf(k) })), this.view)));
    this.legend.querySelectorAll("button")[focused]?.focus();
  }

  // ---- pointing: by the pointer, by the arrow keys, or by another chart of the view

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key], closer = { "+": 0.5, "-": 2 }[event.key];
    if (event.key === "Escape") return this.point(null);
    if (!this.uplot) return undefined;
    if (closer) return this.scaled(closer);
    if (event.key === "0") return this.view.set({ zoom: null });
    if (step === undefined) return undefined;
    event.preventDefault();
    const [places] = this.uplot.data, last = places.length - 1;
    const at = this.uplot.cursor.idx ?? (step > 0 ? -1 : last + 1);
    return this.point(Math.min(last, Math.max(0, step === Infinity ? last : step === -Infinity ? 0 : at + step)), true);
  }

  // Keys zoom around the cursor, or the middle.
  scaled(factor) {
    const [low, high] = this.xRange(), { left } = this.uplot.cursor, middle = left >= 0 ? this.uplot.posToVal(left, "x") : (low + high) / 2;
    const all = this.extent(), next = [Math.max(all[0], middle - (middle - low) * factor), Math.min(all[1], middle + (high - middle) * factor)];
    this.view.set({ zoom: next[0] <= all[0] && next[1] >= all[1] ? null : next });
  }

  select(u) {
    const { left, width } = u.select;
    if (width < DRAG) return;
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.view.set({ zoom: [u.posToVal(left, "x"), u.posToVal(left + width, "x")] });
  }

  point(at, spoken = false) {
    if (!this.uplot) return;
    if (at === null) return void this.uplot.setCursor({ left: -10, top: -10 });
    const x = this.uplot.data[0][at];
    this.uplot.setCursor({ left: this.uplot.valToPos(x, "x"), top: 10 });
    if (spoken) write(this.spoken, [`${this.data.xTitle ?? ""} ${short(this.stands(x))}`, ...this.rows(x).map(({ name, text }) => `${name} ${text}`)].join(", "));
  }

  // The cursor of another chart is at x.
  follow(x) {
    if (!this.uplot) return;
    this.follows = true;
    this.uplot.setCursor(x === null ? { left: -10, top: -10 } : { left: this.uplot.valToPos(x, "x"), top: 10 });
    this.follows = false;
  }

  // Where the cursor is said to be: an area over one place was widened.
  stands(x) { return this.data.stacked && this.data.x.length === 1 ? this.data.x[0] : x; }

  // Of each series that is shown, the value nearest to x.
  rows(x) {
    const format = this.data.format ?? (this.data.stacked || this.data.share ? (v) => percent(v, 1) : number), [low, high] = this.xRange(), weight = this.smoothing();
    const rows = this.series.flatMap((one, k) => {
      if (!this.shows(one)) return [];
      const provisional = one.tail && (!one.x.length || x > one.x[one.x.length - 1] && Math.abs(one.tail.x[nearest(one.tail.x, x)] - x) < x - one.x[one.x.length - 1]);
      const own = provisional ? one.tail : one, at = nearest(own.x, x), value = own.values[at] ?? null;
      if (value === null || (this.data.stacked && value < 5e-4)) return [];
      const even = weight && !provisional ? smoothed(one.values.slice(0, at + 1), weight)[at] : value;
      const between = provisional || !one.low || one.low[at] === null ? "" : ` (${format(one.low[at])} to ${format(one.high[at])})`;
      const apart = Math.abs(own.x[at] - x) > APART * (high - low) ? `, at ${number(own.x[at])}` : "";
      return [{ name: one.name, k, value: even, text: `${format(even)}${weight && !provisional ? ` (raw ${format(value)})` : between}${provisional ? ", provisional" : ""}${apart}` }];
    });
    return this.series.length > 9 ? rows.sort((a, b) => b.value - a.value) : rows;
  }

  cursor() {
    const u = this.uplot;
    if (!u) return;
    const { left } = u.cursor, out = left === undefined || left < 0;
    const at = out ? null : u.posToIdx(left), x = out || at === null || at === undefined ? null : u.data[0][at] ?? null;
    if (!this.follows) this.view.point(x, this);
    const rows = x === null || this.follows ? [] : this.rows(x);
    this.tip.hidden = !rows.length;
    if (!rows.length) return;
    clear(this.tip).append(
      h("p", { text: `${this.data.xTitle ?? ""} ${number(this.stands(x))}` }),
      ...rows.slice(0, IN_TIP).map((row) => h("p", null, h("span", { class: "mark", style: { "--colour": this.colourOf(row.k) } }), h("b", { text: row.text }), ` ${row.name}`)),
      ...(rows.length > IN_TIP ? [h("p", { class: "faint", text: `and ${rows.length - IN_TIP} more` })] : []),
    );
    const place = this.plot.offsetLeft + u.over.offsetLeft + u.valToPos(x, "x");
    const right = place + this.tip.offsetWidth + 14 > this.node.clientWidth;
    this.tip.style.left = `${Math.max(0, right ? place - this.tip.offsetWidth - 12 : place + 12)}px`;
    this.tip.style.top = `${this.plot.offsetTop + 12}px`;
  }

  // ---- files

  words() { return [this.data.yTitle ?? this.data.series[0]?.name ?? "", this.data.xTitle]; }

  csv() {
    saveCsv(this.words(), this.data.xTitle ?? "x", this.series.map((one) => ({ ...one, x: one.x.map((x) => this.stands(x)) })));
  }

  png() {
    if (!this.uplot) return;
    const legend = this.series.map(({ name }, k) => ({ name, colour: this.colourOf(k) })).filter((one) => this.shows(one)).slice(0, IN_LEGEND);
    savePng(this.words(), this.uplot.ctx.canvas, legend, { ink: css("--ink"), paper: css("--card"), font: `13px ${getComputedStyle(document.body).fontFamily}` });
  }
}

// A series with its places in rising order. Where they are its own, a gap is no point.
function placed(one, shared) {
  const last = (x) => x[x.length - 1] ?? -Infinity;
  const ended = (x) => {
    const points = (one.tail?.x ?? []).map((v, k) => [v, one.tail.values[k]]).filter(([v, value]) => v > last(x) && value !== null && value !== undefined);
    return points;
  };
  const series = one.x ? sorted(one) : { ...one, x: shared };
  const points = ended(series.x);
  if (!points.length) return { ...series, tail: null };
  const at = series.values.findLastIndex((value) => value !== null && value !== undefined);
  const joined = at < 0 ? points : [[series.x[at], series.values[at]], ...points];  // from the last stored point on
  return { ...series, tail: { x: joined.map(([x]) => x), values: joined.map(([, value]) => value) } };
}

function sorted(one) {
  const points = one.x.map((v, k) => [v, k]).filter(([v, k]) => v !== null && v !== undefined && one.values[k] !== null && one.values[k] !== undefined).sort((a, b) => a[0] - b[0]);
  const apart = points.filter(([v], k) => k === points.length - 1 || v !== points[k + 1][0]);  // of two at one place the later
  const take = (values) => apart.map(([, k]) => values[k] ?? null);
  return { ...one, x: apart.map(([v]) => v), values: take(one.values), ...(one.low ? { low: take(one.low), high: take(one.high) } : {}) };
}

// The place of the known value that is nearest to one in a column.
function known(column, at) {
  for (let away = 0; away < column.length; away++) {
    if ((column[at - away] ?? null) !== null) return at - away;
    if ((column[at + away] ?? null) !== null) return at + away;
  }
  return at;
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
  data.xTitle, data.yTitle, data.log, data.logX, data.share, data.stacked, data.height, data.whole, data.smooths, data.x?.length === 1,
  data.series.map((one) => [one.name, Boolean(one.low), Boolean(one.x), Boolean(one.tail?.x.length), one.dashed, typeof one.colour === "function" ? "f" : one.colour, (one.x ?? data.x).length <= 6]),
]);

// An area over one place has no width: it gets some.
function widened({ x: [place], series }) {
  const side = 0.4 * (Math.abs(place) || 1);
  return series.map((one) => ({ ...one, x: [place - side, place + side], values: [one.values[0], one.values[0]] }));
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
      made.cells[k].classList.toggle("none", shown === "–");
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
