// A payoff table as a heat map: one pixel of an image for each cell, drawn once per data, then only moved and scaled.

import { announce, h } from "./dom.js";
import { number, whole } from "./charts.js";
import { colour, colours, palette } from "./colours.js";
import { interval } from "./measured.js";
import { shortNames } from "./names.js";
import { fitted, font, scaleKey, stage } from "./stage.js";

const EXACT = 4294967295;  // a count: computed, not played
const CLOSEST = 84;  // pixels of a cell, as near as one may come
const NUMBERS = 44, INTERVALS = 66;  // pixels of a cell from which its mean, and its interval, are written in it
const LINES = 14;  // and from which cells have lines between them
const TALLEST = 660;
const STRIP = 5;  // pixels of the strip of clusters
export const ORDERS = ["rating", "age", "cluster"];
export const SCALES = ["played", "all"];  // cells that set the colours
const ENOUGH = 16;  // cells between policies that are played, from which they alone set them
let painted = false;

// What a panel "payoffs" says, unpacked. mean, half_width, count: [n × m], row by row.
export function unpacked(data, source) {
  const open = (packed) => packed && source.unpack(packed).data;
  const table = { ...data, mean: open(data.mean), half_width: open(data.half_width), count: open(data.count), wins: open(data.wins) };
  return table.order === ORDERS[0] ? table : { ...table, ...strengths(table) };
}

// Of a table that comes in another order than by rating: what each row and column earns on average, [n] and [m], NaN where nothing is known.
function strengths({ mean, rows, columns, of, row_player: row, column_player: column }) {
  const over = (n, m, at) => Array.from({ length: n }, (_, i) => {
    let sum = 0, known = 0;
    for (let j = 0; j < m; j++) {
      const value = mean[at(i, j)];
      if (Number.isNaN(value)) continue;
      sum += value;
      known += 1;
    }
    return sum / known;
  });
  const sign = (player) => (player === of ? 1 : -1), width = columns.length;
  return {
    row_strength: over(rows.length, width, (i, j) => i * width + j).map((value) => sign(row) * value),
    column_strength: over(width, rows.length, (j, i) => i * width + j).map((value) => sign(column) * value),
  };
}

// The cell in row i and column j, as it stands in the data.
export function cellOf(data, i, j) {
  const at = i * data.columns.length + j;
  const count = data.count[at];
  const known = !Number.isNaN(data.mean[at]), [least, most] = data.utility ?? [], half = data.half_width[at];
  return {
    row: data.rows[i], column: data.columns[j], i, j, known, exact: count === EXACT,
    mean: known ? shown(data.mean[at], data.negligible) : null, wins: winsOf(data, at), half_width: Number.isNaN(half) ? null : half, count,
    interval: Number.isNaN(half) ? null : [Math.max(data.mean[at] - half, least ?? -Infinity), Math.min(data.mean[at] + half, most ?? Infinity)],
  };
}

// 0 for what differs from it by noise only.
const shown = (value, negligible) => (Math.abs(value) < (negligible ?? 0) ? 0 : value);

// [won, drawn, lost] episodes of a cell; null where nobody counted.
function winsOf({ wins, mean }, at) {
  if (!wins) return null;
  const ends = [0, 1, 2].map((end) => wins[end * mean.length + at]);
  return ends.some(Boolean) ? ends : null;
}

// "won 124 · drawn 0 · lost 76"
export const ended = (wins) => `won ${whole(wins[0])} · drawn ${whole(wins[1])} · lost ${whole(wins[2])}`;

// "0.12 ± 0.03", "0.12 exactly", "not played yet"
export function worth(cell) {
  if (!cell.known) return "not played yet";
  if (cell.exact) return `${number(cell.mean)} exactly`;
  return interval(cell.mean, cell.interval);
}

// "rock against paper"; a single player's policies are against nobody.
export function title(cell, { row_player: row, column_player: column }) {
  return row === column ? cell.row : `${cell.row} against ${cell.column}`;
}

export function played(cell) {
  if (!cell.known) return "";
  return cell.exact ? "computed, not played" : `${whole(cell.count)} ${cell.count === 1 ? "episode" : "episodes"}`;
}

// [n] indices of rows (or columns), in the order in which they are seen. strength: of each, where they are not in the order of their ratings.
export function arranged(order, index, clusters, strength = null) {
  const places = [...index.keys()];
  const known = (k) => (Number.isNaN(strength[k]) ? -Infinity : strength[k]);
  if (strength && order !== "age") places.sort((a, b) => known(b) - known(a) || a - b);
  if (order === "age") return places.sort((a, b) => index[a] - index[b]);
  if (order === "cluster") return places.sort((a, b) => clusters[a] - clusters[b]);
  return places;
}

// Centre and reach of the colours: around 0 where both signs are possible, else around the middle of what is. scale "played": the reach is
// the 95th percentile of what is played, each cell as likely as its policies (of all that a policy which is played earns, where these cells
// are few); "all": the largest, unless a few extreme values would make all others pale. Past the reach colours stay as they are (cut).
export function range(data, scale) {
  const { mean, utility, negligible } = data, step = Math.max(1, Math.floor(mean.length / 10000));
  const every = [];  // at most some ten thousand of the known values
  for (let k = 0; k < mean.length; k += step) if (!Number.isNaN(mean[k])) every.push([mean[k], 1]);
  if (!every.length) return { centre: 0, reach: 1, cut: false };
  const values = every.map(([value]) => value).sort((a, b) => a - b);
  const [least, most] = utility && utility.every(Number.isFinite) ? utility : [values[0], values[values.length - 1]];
  const centre = least < 0 && most > 0 ? 0 : (least + most) / 2;
  const largest = Math.max(values[values.length - 1] - centre, centre - values[0]), few = scale === "played" ? playedCells(data) : [];
  const away = (cells) => cells.map(([value, weight]) => [Math.abs(value - centre), weight]);
  const reach = few.length ? percentile(away(few), 0.95) : percentile(away(every), 0.995), cut = reach > 0 && largest > (few.length ? 1 : 1.25) * reach;
  return { centre, reach: Math.max(cut ? reach : largest, 10 * (negligible ?? 0)) || 1, cut };
}

// The least value that has at least a share of the weight at or below it. cells: [[value, weight]].
function percentile(cells, share) {
  const sorted = [...cells].sort((a, b) => a[0] - b[0]), total = sorted.reduce((sum, [, weight]) => sum + weight, 0);
  let sum = 0;
  return sorted.find(([, weight]) => (sum += weight) >= share * total - 1e-9)[0];
}

// [[value, weight]] of cells between policies that are played, as likely as both; where these are few, of all cells of such a policy.
function playedCells({ mean, columns, row_probability: rows, column_probability: across }) {
  const width = columns.length, places = (shares) => shares.flatMap((share, k) => (share > 0 ? [k] : []));
  const cells = places(rows).flatMap((i) => places(across).map((j) => [mean[i * width + j], rows[i] * across[j]])).filter(([value]) => !Number.isNaN(value));
  if (cells.length >= ENOUGH) return cells;
  cells.length = 0;
  rows.forEach((share, i) => {
    for (let j = 0; j < width; j++) if (share + across[j] > 0 && !Number.isNaN(mean[i * width + j])) cells.push([mean[i * width + j], share + across[j]]);
  });
  return cells;
}

// Cells worth a look, as [row, column] places: between the policies that are played most, and where the weaker one wins most. Strength is
// the mean payoff of a row, and of a column. shared: rows and columns are the policies of one population, and a pair is told of once.
export function notable(data, shared, most = 5) {
  const { mean, columns, negligible, row_player: row, column_player: column, row_probability: rows, column_probability: across } = data;
  if (row === column) return [];
  const n = rows.length, m = columns.length, own = (i, j) => shared && data.row_index[i] === data.column_index[j];
  const strength = { rows: new Float64Array(n), columns: new Float64Array(m) }, known = { rows: new Float64Array(n), columns: new Float64Array(m) };
  for (let i = 0, at = 0; i < n; i++) {
    for (let j = 0; j < m; j++, at++) {
      const value = mean[at];
      if (value !== value || own(i, j)) continue;
      strength.rows[i] += value;
      strength.columns[j] += value;
      known.rows[i] += 1;
      known.columns[j] += 1;
    }
  }
  for (const side of ["rows", "columns"]) strength[side].forEach((sum, k) => { strength[side][k] = sum / Math.max(1, known[side][k]); });
  const middle = strength.rows.reduce((sum, value) => sum + value, 0) / n, played = best(most), upsets = best(most);
  for (let i = 0, at = 0; i < n; i++) {
    for (let j = 0; j < m; j++, at++) {
      const value = mean[at];
      if (value !== value || (shared && data.row_index[i] <= data.column_index[j])) continue;  // of a shared population each pair once
      played.offer(rows[i] * across[j], i, j);
      const expected = strength.rows[i] + strength.columns[j] - middle;
      if (value * expected < 0 && Math.abs(value) > (negligible ?? 0)) upsets.offer(Math.abs(value - expected), i, j);
    }
  }
  return [{ heading: "Played most", cells: played.cells() }, { heading: "Largest upsets", cells: upsets.cells() }];
}

// The cells of most worth, of those that have any.
function best(most) {
  const first = [];  // [worth, i, j], falling
  return {
    offer(worth, i, j) {
      if (!(worth > 0) || (first.length === most && worth <= first[most - 1][0])) return;
      first.push([worth, i, j]);
      first.sort((a, b) => b[0] - a[0]);
      if (first.length > most) first.pop();
    },
    cells: () => first.map(([, i, j]) => [i, j]),
  };
}

// pick(cell) is called when a cell is chosen; hover needs no listener. Returns { set(data), order(name), find(name), cursor, destroy() }.
export function heatMap(node, { describedby, pick }) {
  return new HeatMap(node, { describedby, pick });
}

class HeatMap {
  constructor(node, { describedby, pick }) {
    this.pick = pick;
    this.data = null;
    this.by = "rating";
    this.scale = SCALES[0];
    this.picked = null;  // [row, column] names
    this.pointed = null;  // [row, column] places, as seen
    this.image = document.createElement("canvas");
    this.legend = h("div", { class: "key" });
    this.node = h("div", { class: "heat" });
    node.append(this.node);
    this.theme();
    this.stage = stage(this.node, {
      label: "Payoff table. Arrow keys go from cell to cell, with Shift ten at once; Enter opens a cell; plus, minus and 0 zoom.",
      describedby, legend: this.legend,
      height: (width) => this.height(width),
      insets: (width) => this.insets(width),
      world: () => ({ width: this.columns.length, height: this.rows.length }),
      closest: () => CLOSEST,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.hover(point),
      pick: (point) => { const place = this.placeOf(point); if (place) this.choose(place); },
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
  }

  destroy() {
    this.stage.destroy();
  }

  get rows() { return this.rowOrder ?? []; }
  get columns() { return this.columnOrder ?? []; }

  set(data) {
    const before = this.pointed && this.names(this.pointed);
    this.data = data;
    const short = shortNames([...data.rows, ...data.columns]);
    this.rowNames = short.slice(0, data.rows.length);
    this.columnNames = short.slice(data.rows.length);
    this.longest = null;
    this.arrange();
    this.pointed = before && this.find(before);
    this.tighten();
    this.stage.resize();
  }

  order(name) {
    const before = this.pointed && this.names(this.pointed);
    this.by = name;
    this.arrange();
    this.pointed = before && this.find(before);
    this.stage.tip(null);  // another cell lies there now
    this.stage.draw();
  }

  // name: of SCALES.
  scaled(name) {
    this.scale = name;
    this.arrange();
    this.stage.draw();
  }

  arrange() {
    const { data } = this;
    this.rowOrder = arranged(this.by, data.row_index, data.row_clusters, data.row_strength);
    this.columnOrder = arranged(this.by, data.column_index, data.column_clusters, data.column_strength);
    this.range = range(data, this.scale);
    this.fill();
  }

  // One pixel for each cell; a hole stays clear, and the hatching below shows.
  fill() {
    const { data, rows, columns } = this, n = rows.length, m = columns.length;
    if (!n || !m) return;
    this.image.width = m;
    this.image.height = n;
    const context = this.image.getContext("2d"), picture = context.createImageData(m, n), pixels = new Uint32Array(picture.data.buffer);
    const { centre, reach } = this.range, noise = data.negligible ?? 0, { pixels: lookup, steps } = this.palette, by = steps / reach, { mean } = data;
    for (let i = 0, at = 0; i < n; i++) {
      const from = rows[i] * m;
      for (let j = 0; j < m; j++, at++) {
        const value = mean[from + columns[j]];
        if (value !== value) continue;
        const step = value - centre < noise && centre - value < noise ? 0 : Math.round((value - centre) * by);
        pixels[at] = lookup[steps + (step > steps ? steps : step < -steps ? -steps : step)];
      }
    }
    context.putImageData(picture, 0, 0);
    this.paintLegend();
  }

  theme() {
    this.colours = colours("ink", "soft", "faint", "line", "card", "accent");
    this.palette = palette();
    this.hatching = null;
    if (this.data) this.fill();
  }

  paintLegend() {
    const { centre, reach, cut } = this.range, less = cut ? "≤ " : "", more = cut ? "≥ " : "";
    this.legend.replaceChildren(
      scaleKey(`${less}${number(centre - reach, 3)}`, "heat-scale", `${more}${number(centre + reach, 3)}`),
      h("span", { class: "key-item" }, h("i", { class: "heat-hole", "aria-hidden": "true" }), "not played"),
    );
  }

  // ---------------------------------------------------------------------------------------------------------- geometry

  insets(width) {
    if (!this.data) return {};
    if (this.longest?.width !== width) {
      const context = this.stage.context;
      context.font = font(12, 700);
      const widest = (names) => Math.max(0, ...names.map((name) => context.measureText(name).width));
      const left = Math.min(Math.ceil(widest(this.rowNames)) + 14, Math.round(Math.min(130, 0.28 * width)));
      const columns = Math.ceil(widest(this.columnNames)) + 12;
      const level = columns <= Math.min(CLOSEST, (width - left) / Math.max(1, this.columns.length));
      this.longest = { width, left, level, top: level ? 26 : Math.min(columns + 4, 110) };
    }
    return { left: this.longest.left, top: this.longest.top, right: 1, bottom: 1 };
  }

  height(width) {
    const { left = 0, top = 0 } = this.insets(width);
    const cell = Math.min(CLOSEST, (width - left - 1) / Math.max(1, this.columns.length));
    return Math.ceil(Math.min(TALLEST, top + 2 + cell * Math.max(1, this.rows.length)));
  }

  // No wider than the table is where its height decides.
  tighten() {
    const { left, top } = this.insets(this.stage.node.clientWidth || 800);
    const cell = Math.min(CLOSEST, (TALLEST - top - 2) / Math.max(1, this.rows.length));
    this.node.parentElement.style.maxWidth = `${Math.max(180, Math.ceil(left + 2 + cell * this.columns.length))}px`;
  }

  placeOf(point) {
    if (!point?.inside) return null;
    const i = Math.floor(point.y), j = Math.floor(point.x);
    return i >= 0 && j >= 0 && i < this.rows.length && j < this.columns.length ? [i, j] : null;
  }

  cell([i, j]) {
    return cellOf(this.data, this.rows[i], this.columns[j]);
  }

  names(place) {
    const { row, column } = this.cell(place);
    return [row, column];
  }

  // Where the cell of two names is seen; null where it is not.
  find([row, column]) {
    const i = this.rows.findIndex((k) => this.data.rows[k] === row), j = this.columns.findIndex((k) => this.data.columns[k] === column);
    return i < 0 || j < 0 ? null : [i, j];
  }

  // Goes to a policy's row or column. Returns whether there is one.
  seek(name) {
    const i = this.rows.findIndex((k) => this.data.rows[k] === name), j = this.columns.findIndex((k) => this.data.columns[k] === name);
    if (i < 0 && j < 0) return false;
    if (this.stage.view.scale < 18) this.stage.zoom(18 / this.stage.view.scale);
    this.go([Math.max(0, i), Math.max(0, j)]);
    return true;
  }

  // ---------------------------------------------------------------------------------------------------------- pointing

  hover(point) {
    const place = this.placeOf(point);
    if (String(place) === String(this.pointed) && place) return;
    this.pointed = place;
    this.tell(place && point);
    this.stage.draw();
  }

  tell(point) {
    if (!point || !this.pointed) return void this.stage.tip(null);
    const cell = this.cell(this.pointed);
    this.stage.tip(point.screenX, point.screenY, [h("p", { text: title(cell, this.data) }), h("p", null, h("b", { text: worth(cell) })), h("p", { class: "faint", text: played(cell) }), cell.wins ? h("p", { text: ended(cell.wins) }) : ""]);
  }

  go(place) {
    this.pointed = place;
    this.stage.show(place[1] + 0.5, place[0] + 0.5, 0.5);
    const [screenX, screenY] = this.stage.toScreen(place[1] + 1, place[0] + 1), cell = this.cell(place);
    this.tell({ screenX, screenY });
    announce(`${title(cell, this.data)}: ${worth(cell)}${cell.known && !cell.exact ? `, ${played(cell)}` : ""}${cell.wins ? `, ${ended(cell.wins)}` : ""}`);
  }

  choose(place) {
    this.pointed = place;
    this.picked = this.names(place);
    this.stage.draw();
    this.pick(this.cell(place));
  }

  // Shows and chooses the cell of two names.
  open(names) {
    const place = this.find(names);
    if (!place) return;
    this.stage.show(place[1] + 0.5, place[0] + 0.5, 0.5);
    this.choose(place);
  }

  key(event) {
    if (!this.rows.length || !this.columns.length) return false;
    if (event.key === "Escape") {
      this.pointed = null;
      this.stage.tip(null);
      this.stage.draw();
      return true;
    }
    if ((event.key === "Enter" || event.key === " ") && this.pointed) {
      this.choose(this.pointed);
      return true;
    }
    const by = event.shiftKey ? 10 : 1, last = [this.rows.length - 1, this.columns.length - 1], [i, j] = this.pointed ?? [0, 0];
    const to = {
      ArrowUp: [i - by, j], ArrowDown: [i + by, j], ArrowLeft: [i, j - by], ArrowRight: [i, j + by],
      PageUp: [i - 10, j], PageDown: [i + 10, j], Home: [i, 0], End: [i, last[1]],
    }[event.key];
    if (!to) return false;
    this.go(this.pointed ? to.map((at, k) => Math.min(Math.max(at, 0), last[k])) : [0, 0]);
    return true;
  }

  // ---------------------------------------------------------------------------------------------------------- painting

  paint(context, on) {
    if (!this.rows.length || !this.columns.length) return;
    const { body, view: { scale } } = on;
    const seen = this.seen(on);
    context.save();
    context.beginPath();
    context.rect(body.left, body.top, body.width, body.height);
    context.clip();
    this.paintCells(context, on, seen);
    if (scale >= LINES) this.paintLines(context, on, seen);
    if (this.by === "cluster") this.paintBorders(context, on, seen);
    if (scale >= NUMBERS) this.paintNumbers(context, on, seen);
    this.paintCursor(context, on);
    context.restore();
    this.paintHeaders(context, on, seen);
    if (!painted) performance.mark("ludus-painted");  // for whoever measures how soon a page is of use
    painted = true;
  }

  seen({ body, view }) {
    const clip = (from, size, n) => [Math.max(0, Math.floor(from)), Math.min(n, Math.ceil(from + size))];
    const [top, bottom] = clip(view.y, body.height / view.scale, this.rows.length), [left, right] = clip(view.x, body.width / view.scale, this.columns.length);
    return { top, bottom, left, right };
  }

  paintCells(context, on, { top, bottom, left, right }) {
    const { scale } = on.view, [x, y] = on.toScreen(left, top);
    context.fillStyle = this.hatch(context);
    context.fillRect(x, y, (right - left) * scale, (bottom - top) * scale);
    context.imageSmoothingEnabled = scale * on.size.ratio < 1.5;
    context.drawImage(this.image, left, top, right - left, bottom - top, x, y, (right - left) * scale, (bottom - top) * scale);
  }

  hatch(context) {
    if (this.hatching) return this.hatching;
    const tile = document.createElement("canvas"), size = 7;
    tile.width = tile.height = size;
    const paint = tile.getContext("2d");
    paint.fillStyle = this.colours.card;
    paint.fillRect(0, 0, size, size);
    paint.strokeStyle = this.colours.faint;
    paint.globalAlpha = 0.45;
    paint.beginPath();
    for (const shift of [-size, 0, size]) {
      paint.moveTo(shift - 1, size + 1);
      paint.lineTo(shift + size + 1, -1);
    }
    paint.stroke();
    this.hatching = context.createPattern(tile, "repeat");
    return this.hatching;
  }

  paintLines(context, on, { top, bottom, left, right }) {
    const [x0, y0] = on.toScreen(left, top), [x1, y1] = on.toScreen(right, bottom);
    context.beginPath();
    for (let j = left; j <= right; j++) line(context, on.toScreen(j, 0)[0], y0, on.toScreen(j, 0)[0], y1);
    for (let i = top; i <= bottom; i++) line(context, x0, on.toScreen(0, i)[1], x1, on.toScreen(0, i)[1]);
    context.strokeStyle = this.colours.card;
    context.stroke();
  }

  paintBorders(context, on, { top, bottom, left, right }) {
    const [x0, y0] = on.toScreen(left, top), [x1, y1] = on.toScreen(right, bottom);
    const { row_clusters: byRow, column_clusters: byColumn } = this.data;
    context.beginPath();
    for (let i = Math.max(1, top); i < bottom; i++) if (byRow[this.rows[i]] !== byRow[this.rows[i - 1]]) line(context, x0, on.toScreen(0, i)[1], x1, on.toScreen(0, i)[1]);
    for (let j = Math.max(1, left); j < right; j++) if (byColumn[this.columns[j]] !== byColumn[this.columns[j - 1]]) line(context, on.toScreen(j, 0)[0], y0, on.toScreen(j, 0)[0], y1);
    context.strokeStyle = this.colours.ink;
    context.globalAlpha = 0.75;
    context.stroke();
    context.globalAlpha = 1;
  }

  paintNumbers(context, on, { top, bottom, left, right }) {
    const { scale } = on.view, { centre, reach } = this.range, tall = scale >= INTERVALS;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let i = top; i < bottom; i++) {
      for (let j = left; j < right; j++) {
        const cell = this.cell([i, j]), [x, y] = on.toScreen(j + 0.5, i + 0.5);
        if (!cell.known) continue;
        context.fillStyle = Math.abs(cell.mean - centre) > 0.55 * reach ? this.colours.card : this.colours.ink;
        context.font = font(tall ? 14 : 12, 600);
        const [mean, half] = cell.exact ? [number(cell.mean, 3)] : interval(cell.mean, cell.half_width).split(" ± ");
        context.fillText(mean, x, tall && half ? y - 8 : y);
        if (!tall || !half) continue;
        context.font = font(11);
        context.fillText(`± ${half}`, x, y + 10);
      }
    }
  }

  paintCursor(context, on) {
    const { scale } = on.view, size = Math.max(scale, 4);
    const frame = ([i, j], colour, width) => {
      const [x, y] = on.toScreen(j + 0.5, i + 0.5);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.strokeRect(x - size / 2, y - size / 2, size, size);
    };
    if (this.pointed) {
      const [x, y] = on.toScreen(this.pointed[1], this.pointed[0]), { left, top, width, height } = on.body;
      context.globalAlpha = 0.45;
      context.lineWidth = 1;
      context.strokeStyle = this.colours.ink;
      context.strokeRect(left - 2, y, width + 4, scale);
      context.strokeRect(x, top - 2, scale, height + 4);
      context.globalAlpha = 1;
    }
    const picked = this.picked && this.find(this.picked);
    if (picked) frame(picked, this.colours.accent, 3);
    if (this.pointed) frame(this.pointed, this.colours.ink, 2);
  }

  paintHeaders(context, on, { top, bottom, left, right }) {
    const { body, view: { scale } } = on;
    const stride = (least) => nice(least / scale);
    context.textBaseline = "middle";
    const rows = this.named(top, bottom, stride(15), this.pointed?.[0]), columns = this.named(left, right, stride(this.longest.level ? 1 : 15), this.pointed?.[1]);
    context.textAlign = "right";
    for (const { at, strong } of rows) {
      const y = on.toScreen(0, at + 0.5)[1];
      if (y < body.top || y > body.top + body.height) continue;
      this.style(context, strong);
      context.fillText(fitted(context, this.rowNames[this.rows[at]], body.left - 14), body.left - 9, y);
    }
    for (const { at, strong } of columns) this.paintColumn(context, on, at, strong);
    if (this.by === "cluster") this.paintStrips(context, on, { top, bottom, left, right });
  }

  paintColumn(context, on, at, strong) {
    const { body } = on, x = on.toScreen(at + 0.5, 0)[0], name = this.columnNames[this.columns[at]];
    if (x < body.left || x > body.left + body.width) return;
    this.style(context, strong);
    if (this.longest.level) {
      context.textAlign = "center";
      context.fillText(name, x, body.top - 13);
      return;
    }
    context.save();
    context.translate(x, body.top - 9);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(fitted(context, name, body.top - 12), 0, 0);
    context.restore();
  }

  style(context, strong) {
    context.font = font(12, strong ? 700 : 400);
    context.fillStyle = strong ? this.colours.ink : this.colours.soft;
  }

  // Which headers are written: every stride-th, and the one that is pointed at in place of those beside it.
  named(from, to, stride, pointed) {
    const marks = [];
    for (let at = Math.ceil(from / stride) * stride; at < to; at += stride) if (pointed === undefined || at === pointed || Math.abs(at - pointed) >= stride) marks.push({ at, strong: at === pointed });
    if (pointed !== undefined && pointed >= from && pointed < to && !marks.some(({ at }) => at === pointed)) marks.push({ at: pointed, strong: true });
    return marks;
  }

  paintStrips(context, on, { top, bottom, left, right }) {
    const { row_clusters: byRow, column_clusters: byColumn } = this.data, { body, view: { scale } } = on;
    const kinds = 1 + Math.max(0, ...byRow, ...byColumn);
    for (let i = top; i < bottom; i++) {
      context.fillStyle = colour(byRow[this.rows[i]], kinds);
      const y = Math.max(on.toScreen(0, i)[1], body.top);
      context.fillRect(body.left - STRIP - 1, y, STRIP, Math.min(scale + 0.5, body.top + body.height - y));
    }
    for (let j = left; j < right; j++) {
      context.fillStyle = colour(byColumn[this.columns[j]], kinds);
      const x = Math.max(on.toScreen(j, 0)[0], body.left);
      context.fillRect(x, body.top - STRIP - 1, Math.min(scale + 0.5, body.left + body.width - x), STRIP);
    }
  }
}

function line(context, x0, y0, x1, y1) {
  context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
  context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
}

// 1, 2, 5, 10, 20, 50 …: the least that is enough.
function nice(least) {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((k) => k * power >= least) * power;
}
