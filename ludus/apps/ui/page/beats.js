// Who beats whom, among the policies that are played most: a small table of numbers whose cells are coloured by the row's result.

import { h } from "./dom.js";
import { percent, short, whole } from "./charts.js";
import { diverging } from "./colours.js";
import { policyAddress } from "./links.js";
import { interval, share, tidy } from "./measured.js";
import { shortNames } from "./names.js";

const NAMED = 8;  // columns up to which the names of rows stand in full
const LEGIBLE = 0.52;  // share of a colour on which text has a contrast of 4.5 in light and in dark
const ROOM = 3;  // digits of a payoff

// Writes payoffs of a table alike, as short as tells them apart: ".57", "−1.2", "310", "12 k". values: all of them.
export function brief(values) {
  const known = values.filter((v) => v !== null), most = Math.max(...known.map(Math.abs)), apart = Math.max(...known) - Math.min(...known);
  const before = most < 1 ? 0 : Math.floor(Math.log10(most)) + 1, wanted = apart > 0 ? 1 - Math.floor(Math.log10(apart / 2)) : 2;
  const places = Math.min(Math.max(0, ROOM - before), Math.max(0, wanted));
  return (value) => {
    if (Math.abs(value) >= 1e4) return short(Number(value.toPrecision(2)));
    const text = value.toFixed(places);
    return Number(text) === 0 ? "0" : text.replace(/^(-?)0\./, "$1.").replace("-", "−");
  };
}

// "1-24 against 0-2: 64% ± 5%, won 128 · drawn 0 · lost 72"
function described({ rows, columns, value, half_width, games, rate }, i, j) {
  const mean = value[i][j], half = half_width[i][j], counts = games[i]?.[j];
  const who = `${rows.policies[i]} against ${columns.policies[j]}`;
  if (mean === null) return `${who}: not played`;
  const result = rate ? `wins ${percent(mean)}${half ? ` ± ${percent(half)}` : ""}` : `earns ${interval(tidy(mean), half)}`;
  return `${who}: ${result}${counts && counts.some(Boolean) ? `, won ${whole(counts[0])} · drawn ${whole(counts[1])} · lost ${whole(counts[2])}` : ""}`;
}

const text = ({ value, rate, low, high }) => (rate ? (v) => percent(v) : brief([...value.flat(), low, high]));

// data: `PlayedTable`. Returns a node.
export function beats(run, data) {
  const { rows, columns, value, middle, low, high } = data;
  const few = columns.policies.length <= NAMED, shown = text(data);
  const cell = (mean, i, j) => {
    const told = described(data, i, j);
    if (mean === null) return h("td", { class: "hole", title: told, "aria-label": told });
    const end = mean < middle ? low : high, away = end === middle ? 0 : (mean - middle) / Math.abs(end - middle);
    return h("td", { title: told, style: { background: diverging(LEGIBLE * Math.min(1, Math.max(-1, away))) }, text: shown(tidy(mean)) });
  };
  const [rowNames, columnNames] = [few ? rows.policies : shortNames(rows.policies), shortNames(columns.policies)];
  const link = (side, names, k) => h("a", { href: policyAddress(run, side.population, side.policies[k]), title: `${side.policies[k]}, played with ${share(side.share[k])}`, text: names[k] });
  const head = h("tr", null, h("td"), columns.policies.map((_, j) => h("th", { scope: "col" }, h("div", null, link(columns, columnNames, j)))));
  const body = rows.policies.map((_, i) => h("tr", null, h("th", { scope: "row" }, link(rows, rowNames, i)), value[i].map((mean, j) => cell(mean, i, j))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Who beats whom" }, h("table", { class: "beats" }, h("thead", null, head), h("tbody", null, body)));
}

// What its colours and hatched cells mean, in a line or two.
export function beatsScale(data) {
  const { value, middle, middle_of: of, low, high, wins } = data, shown = text(data);
  const hole = value.flat().includes(null) && h("span", { class: "key-item" }, h("i", { class: "heat-hole", "aria-hidden": "true" }), "not played against each other");
  if (low === high) return h("p", { class: "key" }, "All earn the same.", hole);
  const [less, more] = wins ? ["the row's policy loses to the column's", "beats it"] : ["the row's policy earns less", "more"];
  return [
    h("p", { class: "key" }, h("span", { text: less }), h("span", { class: "key-item" }, shown(low), h("span", { class: "heat-scale pale", "aria-hidden": "true" }), `${shown(high)} ${more}`), hole),
    of && h("p", { class: "key", text: `In the middle ${shown(middle)}: ${of}.` }),
  ];
}
