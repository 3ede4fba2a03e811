// Numbers with their intervals, and shares, as they stand in tables and beside charts.

import { h, svg } from "./dom.js";
import { number, percent } from "./charts.js";

const WIDTH = 120, EDGE = 6;  // pixels of a row's dot and whiskers
export const SMALL = 5e-4;  // shares below are as good as none

const NOTHING = 1e-12;  // what sums of exact payoffs leave of a zero

// Zero for what differs from it by rounding only.
export const tidy = (value) => (Math.abs(value) < NOTHING ? 0 : value);

// "0.635 ± 0.023", "1 540 ± 18": the interval with two digits that matter, the value with as many decimals.
export function interval(value, half) {
  if (value === null || value === undefined) return "–";
  if (!half || !Number.isFinite(half)) return number(tidy(value));
  const places = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(half))));
  const text = Math.abs(value) >= 1000 && places === 0 ? number(Math.round(value)) : value.toFixed(places).replace("-", "−");
  return `${text} ± ${half.toFixed(places)}`;
}

// [lowest, highest] of the intervals of all rows. value, half: keys.
export function domain(rows, value, half) {
  let low = Infinity, high = -Infinity;
  for (const row of rows) {
    if (row[value] === null || row[value] === undefined) continue;
    low = Math.min(low, row[value] - (row[half] ?? 0));
    high = Math.max(high, row[value] + (row[half] ?? 0));
  }
  return [low, high];
}

// A number with its interval, as text and as a dot with whiskers on a scale that all rows share. [low, high]: of domain().
export function measured(value, half, [low, high]) {
  if (value === null || value === undefined) return "–";
  const at = (v) => EDGE + (WIDTH - 2 * EDGE) * (high > low ? (v - low) / (high - low) : 0.5);
  const zero = low < 0 && high > 0 ? svg("line", { class: "whisker-zero", x1: at(0), x2: at(0), y1: 0, y2: 16 }) : null;
  const whisker = half ? svg("path", { class: "whisker", d: `M${at(value - half)} 8H${at(value + half)}M${at(value - half)} 5v6M${at(value + half)} 5v6` }) : null;
  const dot = svg("circle", { class: "whisker-dot", cx: at(value), cy: 8, r: 3.5 });
  return h("span", { class: "measured" }, interval(value, half), svg("svg", { viewBox: `0 0 ${WIDTH} 16`, width: WIDTH, height: 16, "aria-hidden": "true" }, zero, whisker, dot));
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
