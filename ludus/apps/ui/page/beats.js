// Who beats whom, among the policies that are played most: a small table whose cells are coloured by the row's result.

import { h } from "./dom.js";
import { number, percent, whole } from "./charts.js";
import { diverging } from "./colours.js";
import { policyAddress } from "./links.js";
import { interval, share, tidy } from "./measured.js";
import { shortNames } from "./names.js";

const WRITTEN = 8;  // columns up to which a cell has its number, and names stand in full
const LEGIBLE = 0.52;  // share of a colour on which text has a contrast of 4.5 in light and in dark

const shown = (value, rate) => (rate ? percent(value) : number(tidy(value), 2));

// "1-24 against 0-2: 64% ± 5%, won 128 · drawn 0 · lost 72"
function described({ rows, columns, value, half_width, games, rate }, i, j) {
  const mean = value[i][j], half = half_width[i][j], counts = games[i]?.[j];
  const who = `${rows.policies[i]} against ${columns.policies[j]}`;
  if (mean === null) return `${who}: not played`;
  const result = rate ? `wins ${percent(mean)}${half ? ` ± ${percent(half)}` : ""}` : `earns ${interval(tidy(mean), half)}`;
  return `${who}: ${result}${counts && counts.some(Boolean) ? `, won ${whole(counts[0])} · drawn ${whole(counts[1])} · lost ${whole(counts[2])}` : ""}`;
}

// data: `PlayedTable`. Returns a node.
export function beats(run, data) {
  const { rows, columns, value, rate, middle, spread } = data;
  const few = columns.policies.length <= WRITTEN;
  const cell = (mean, i, j) => {
    const text = described(data, i, j);
    if (mean === null) return h("td", { class: "hole", title: text, "aria-label": text });
    const away = spread ? Math.min(1, Math.max(-1, (mean - middle) / spread)) : 0;
    return h("td", { title: text, style: { background: diverging(few ? LEGIBLE * away : away) } }, few ? shown(mean, rate) : h("span", { class: "unseen", text: shown(mean, rate) }));
  };
  const [rowNames, columnNames] = [rows, columns].map(({ policies }) => (few ? policies : shortNames(policies)));
  const link = (side, names, k) => h("a", { href: policyAddress(run, side.population, side.policies[k]), title: `${side.policies[k]}, played with ${share(side.share[k])}`, text: names[k] });
  const head = h("tr", null, h("td"), columns.policies.map((_, j) => h("th", { scope: "col" }, h("div", null, link(columns, columnNames, j)))));
  const body = rows.policies.map((_, i) => h("tr", null, h("th", { scope: "row" }, link(rows, rowNames, i)), value[i].map((mean, j) => cell(mean, i, j))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Who beats whom" }, h("table", { class: "beats" }, h("thead", null, head), h("tbody", null, body)));
}

// What its colours mean, in a line.
export function beatsScale({ columns, rate, middle, spread }) {
  const end = (sign) => (rate ? (sign < 0 ? "0%" : "100%") : number(middle + sign * spread, 3));
  if (!spread) return h("p", { class: "key", text: "All earn the same." });
  return h("p", { class: "key" }, h("span", { text: `row loses ${end(-1)}` }), h("span", { class: columns.policies.length <= WRITTEN ? "heat-scale pale" : "heat-scale", "aria-hidden": "true" }), h("span", { text: `${end(1)} row wins` }));
}
