// Numbers with their intervals, and shares, as they stand in tables and beside charts.

import { h, svg } from "./dom.js";
import { number, percent } from "./charts.js";

const WIDTH = 120, EDGE = 6;  // pixels of a row's dot and whiskers
export const SMALL = 5e-4;  // shares below are as good as none

const NOTHING = 1e-12;  // what sums of exact payoffs leave of a zero

// Zero for what differs from it by rounding only.
export const tidy = (value) => (Math.abs(value) < NOTHING ? 0 : value);

// The low and high end of an interval. bounds: [low, high], or half the width of one that is as wide to either side.
const ends = (value, bounds) => (Array.isArray(bounds) ? bounds : [value - (bounds ?? 0), value + (bounds ?? 0)]);

// "0.635 ± 0.023", "1 540 ± 18", "1.000 +0.000 −0.068": the interval with two digits that matter, the value with as many decimals. bounds: as ends().
export function interval(value, bounds) {
  if (value === null || value === undefined) return "–";
  const [below, above] = ends(value, bounds).map((end) => Math.abs(end - value)), wider = Math.max(below, above);
  if (!wider || !Number.isFinite(wider)) return number(tidy(value));
  const places = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(wider))));
  const text = Math.abs(value) >= 1000 && places === 0 ? number(Math.round(value)) : value.toFixed(places).replace("-", "−");
  const sides = [above, below].map((side) => side.toFixed(places));
  return sides[0] === sides[1] ? `${text} ± ${sides[0]}` : `${text} +${sides[0]} −${sides[1]}`;
}

// [lowest, highest] of the intervals of all rows. value, bounds: keys.
export function domain(rows, value, bounds) {
  let low = Infinity, high = -Infinity;
  for (const row of rows) {
    if (row[value] === null || row[value] === undefined) continue;
    const [from, to] = ends(row[value], row[bounds]);
    low = Math.min(low, from);
    high = Math.max(high, to);
  }
  return [low, high];
}

// A number with its interval, as text and as a dot with whiskers on a scale that all rows share. bounds: as ends(); [low, high]: of domain().
export function measured(value, bounds, [low, high]) {
  if (value === null || value === undefined) return "–";
  const at = (v) => EDGE + (WIDTH - 2 * EDGE) * (high > low ? (v - low) / (high - low) : 0.5), [from, to] = ends(value, bounds);
  const zero = low < 0 && high > 0 ? svg("line", { class: "whisker-zero", x1: at(0), x2: at(0), y1: 0, y2: 16 }) : null;
  const whisker = from < to ? svg("path", { class: "whisker", d: `M${at(from)} 8H${at(to)}M${at(from)} 5v6M${at(to)} 5v6` }) : null;
  const dot = svg("circle", { class: "whisker-dot", cx: at(value), cy: 8, r: 3.5 });
  return h("span", { class: "measured" }, interval(value, bounds), svg("svg", { viewBox: `0 0 ${WIDTH} 16`, width: WIDTH, height: 16, "aria-hidden": "true" }, zero, whisker, dot));
}

// "12%", "4.3%", "< 0.1%", "0"
export function share(value) {
  if (value > 0 && value < SMALL) return "< 0.1%";
  return value === 0 ? "0" : percent(value, value < 0.0995 ? 1 : 0);
}

// A probability as a bar with its number.
export function probability(value) {
  if (value === null || value === undefined) return "–";
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * value).toFixed(1)}%` } }));
  return h("span", { class: value < SMALL ? "faint" : null }, bar, h("span", { class: "share-text", text: share(value) }));
}
