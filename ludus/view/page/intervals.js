// Figures with their intervals, one row each: dots, a diamond, whiskers, over one common axis.

import { clear, h } from "./dom.js";
import { number, short, ticks } from "./charts.js";

// rows: [{ label, value, low?, high?, dots?: [{ value, label }], colour (CSS), told? }]; range?: [low, high]; mark?: a place to draw a line at;
// format?(value). Returns { set(rows) }.
export function intervals(node, { rows, title = "", range = null, mark = null, format = number }) {
  const list = h("ul", { class: "intervals", "aria-label": title });
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  clear(node).append(list, axis);

  function set(now) {
    const all = now.flatMap((row) => [row.value, row.low, row.high, ...(row.dots ?? []).map((dot) => dot.value)]).filter((v) => v !== null && v !== undefined);
    const [low, high] = range ?? spread(all);
    const at = (value) => `${(100 * (value - low)) / (high - low)}%`;
    const places = ticks(low, high, 5);
    const grid = () => [...places.map((place) => h("i", { class: "line", style: { left: at(place) } })), mark === null ? null : h("i", { class: "line strong", style: { left: at(mark) } })];
    clear(list).append(...now.map((row) => {
      const said = row.value === null ? "–" : row.low === null || row.low === undefined ? format(row.value) : `${format(row.value)} (${format(row.low)} to ${format(row.high)})`;
      const field = h("div", { class: "field-of", "aria-hidden": "true" }, grid(),
        (row.dots ?? []).filter((dot) => dot.value !== null).map((dot) => h("i", { class: "dot", title: `${dot.label}: ${format(dot.value)}`, style: { left: at(dot.value), "--colour": row.colour } })),
        row.low === null || row.low === undefined ? null : h("i", { class: "whisker", style: { left: at(row.low), width: `calc(${at(row.high)} - ${at(row.low)})`, "--colour": row.colour } }),
        row.value === null ? null : h("i", { class: "diamond", style: { left: at(row.value), "--colour": row.colour } }));
      return h("li", { title: row.told }, h("span", { class: "of", text: row.label }), field, h("span", { class: "is", text: said }));
    }));
    clear(axis).append(h("span", { class: "of" }), h("div", { class: "field-of" }, places.map((place) => h("span", { style: { left: at(place) }, text: short(place) }))), h("span", { class: "is", text: title }));
  }
  set(rows);
  return { set };
}

function spread(values) {
  if (!values.length) return [0, 1];
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < 0.5 * high ? 0 : low - room, high + room];
}
