// What an environment counts in an episode: one statistic of all policies, or all statistics of one policy. Never all of both, which no screen has room for.

import { card, clear, h, picker, write } from "./dom.js";
import { number, table, whole } from "./charts.js";
import { drawnBy } from "./links.js";

const plain = (name) => name.replaceAll("_", " ");

// A card that is filled by set(the panel "statistics"), and hidden while there are none.
export function counted() {
  const { node, head, hint, body } = card("Statistics");
  const state = { tables: [], at: 0, by: 0, name: "", policy: "" };
  const who = h("div"), pick = h("select", { class: "field", "aria-label": "Which one", on: { change: (event) => { state[state.by === 0 ? "name" : "policy"] = event.target.value; draw(); } } });
  const by = picker("Show", ["a statistic of all policies", "all of a policy"], 0, (k) => { state.by = k; draw(); });
  head.append(h("div", { class: "tools" }, who, by, pick));
  let grid = null, drawn = "";

  function draw() {
    const { names, rows } = state.tables[state.at];
    if (!names.includes(state.name)) [state.name] = names;
    if (!rows.some((row) => row.policy === state.policy)) state.policy = rows[rows.length - 1].policy;
    const [choices, chosen] = state.by === 0 ? [names, state.name] : [rows.map((row) => row.policy), state.policy];
    if (pick.options.length !== choices.length || [...pick.options].some((option, k) => option.value !== choices[k])) clear(pick).append(...choices.map((value) => h("option", { value, text: state.by === 0 ? plain(value) : value })));
    pick.value = chosen;
    write(hint, state.by === 0
      ? "What the environment counts in an episode: the mean over all matches of a policy, and over those against its latest opponents."
      : "What the environment counts in an episode of this policy: the means over its matches, beside those of the whole population.");
    const key = `${state.at} ${state.by}`;
    const next = state.by === 0 ? one(rows, names.indexOf(state.name)) : all(rows, names, state.policy);
    if (drawn === key) return grid.set(next);
    drawn = key;
    grid = table(clear(body), state.by === 0 ? { label: "Statistic", rows: next, sort: { key: "mean", down: true }, id: (row) => row.policy, columns: ONE } : { label: "Statistics of a policy", rows: next, columns: ALL, limit: 60, id: (row) => row.name });
    return undefined;
  }

  return {
    node,
    set(tables) {
      state.tables = tables.filter((found) => found.rows.length);
      node.hidden = !state.tables.length;
      if (node.hidden) return;
      state.at = Math.min(state.at, state.tables.length - 1);
      if (!who.childElementCount && state.tables.length > 1) who.append(picker("Population", state.tables.map(drawnBy), 0, (k) => { state.at = k; draw(); }));
      if (!drawn && state.tables[state.at].rows.length === 1) by.choose((state.by = 1));  // nothing to compare it with
      draw();
    },
  };
}

function one(rows, k) {
  const known = rows.map((row) => Math.abs(row.means[k] ?? 0)), most = Math.max(...known, 1e-12);
  return rows.map((row) => ({ policy: row.policy, episodes: row.episodes, mean: row.means[k], share: Math.abs(row.means[k] ?? 0) / most, against: row.against.map(([others, means]) => [others, means[k]]) }));
}

const met = (rows) => rows.some((row) => row.against.length);
const ONE = [
  { key: "policy", title: "policy", text: true },
  { key: "mean", title: "mean", format: (value, row) => h("span", null, h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${100 * row.share}%` } })), number(value)) },
  { key: "episodes", title: "episodes", format: whole },
  { key: "against", title: "against each opponent", text: true, sorts: false, only: met, format: (pairs) => (pairs.length ? h("details", { class: "against" }, h("summary", { text: `${pairs.length} opponent${pairs.length > 1 ? "s" : ""}` }), h("dl", null, pairs.map(([others, mean]) => h("div", null, h("dt", { text: others }), h("dd", { text: number(mean) }))))) : "–") },
];

function all(rows, names, policy) {
  const row = rows.find((found) => found.policy === policy);
  return names.map((name, k) => {
    const known = rows.map((found) => found.means[k]).filter((v) => v !== null);
    return { name, of: rows.length, mean: row.means[k], low: known.length ? Math.min(...known) : null, middle: known.length ? known.reduce((a, b) => a + b, 0) / known.length : null, high: known.length ? Math.max(...known) : null };
  });
}

const several = (rows) => rows.some((row) => row.of > 1);
const ALL = [
  { key: "name", title: "statistic", text: true, format: plain },
  { key: "mean", title: "this policy" }, { key: "middle", title: "all policies", only: several }, { key: "low", title: "least", only: several }, { key: "high", title: "most", only: several },
];
