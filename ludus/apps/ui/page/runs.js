// All runs: what each is at, how well it does, and whether it is well. Several that are chosen are compared.

import { announce, clear, empty, h, icon, picker, time, write } from "./dom.js";
import { number, percent, span, table, whole } from "./charts.js";

const STATES = [
  ["all", () => true], ["at work", (run) => ["running", "paused", "stopping"].includes(kind(run))], ["finished", (run) => run.state === "finished"],
  ["stopped", (run) => ["stopped", "interrupted"].includes(run.state)], ["failed", (run) => run.state === "failed"],
];
const MOST = 64;  // runs that are compared at a time

const kind = (run) => run.state.split(" ")[0];

export async function show(root, { source, go }) {
  const state = { runs: [], unreadable: [], text: "", at: 0, chosen: new Set() };
  const search = h("input", { class: "field", type: "search", placeholder: "Filter by name, game, algorithm …", "aria-label": "Filter runs", on: { input: () => { state.text = search.value.toLowerCase(); draw(); } } });
  const states = picker("State", STATES.map(([name]) => name), 0, (k) => { state.at = k; draw(); });
  const compare = h("button", { type: "button", class: "more main", on: { click: () => go(`/compare?runs=${[...state.chosen].join(",")}`) } });
  const none = h("button", { type: "button", class: "more", text: "None", on: { click: () => { state.chosen.clear(); draw(); } } });
  const all = h("button", { type: "button", class: "more", on: { click: () => { for (const run of shown().slice(0, MOST)) state.chosen.add(run.id); draw(); announce(`${state.chosen.size} runs are chosen.`); } } });
  const hint = h("span", { class: "faint", text: "Tick runs to compare them." });
  const place = h("div"), told = h("div"), lost = h("div");
  const tools = h("div", { class: "bar-of-tools" }, search, states, h("div", { class: "choosing" }, hint, all, none, compare));
  root.append(h("h1", { text: "Runs" }), tools, h("section", { class: "card runs", "aria-label": "Runs" }, place, told, lost));

  const shown = () => state.runs.filter((run) => STATES[state.at][1](run) && (!state.text || [run.name, run.group, run.game, run.algorithm, run.scenario, run.state].join(" ").toLowerCase().includes(state.text)));
  const grid = table(place, { label: "Runs", rows: [], limit: 100, sort: { key: "began", down: false }, id: (run) => run.id, columns: columns(state, () => sayChosen()) });

  function sayChosen() {
    const n = state.chosen.size;
    hint.hidden = n > 0;
    compare.hidden = n === 0;
    none.hidden = n === 0;
    write(compare, n === 1 ? "Show its seeds and curves" : `Compare ${n} runs`);
    compare.disabled = n > MOST;
  }

  function draw() {
    const rows = shown();
    tools.hidden = !state.runs.length;
    place.hidden = !rows.length;
    grid.set(rows);
    all.hidden = rows.length < 2 || (state.at === 0 && !state.text);
    write(all, `Choose these ${whole(Math.min(MOST, rows.length))}`);
    const why = state.runs.length ? "No run is like that." : "No runs yet. `ludus train leduc` starts one; it appears here by itself.";
    clear(told).append(...(rows.length || (!state.runs.length && state.unreadable.length) ? [] : [empty(why)]));
    clear(lost).append(...(state.unreadable.length ? [unreadable(state.unreadable)] : []));
    sayChosen();
  }

  async function load() {
    ({ runs: state.runs, unreadable: state.unreadable = [] } = await source.get("runs"));
    const known = new Set(state.runs.map((run) => run.id));
    for (const id of state.chosen) if (!known.has(id)) state.chosen.delete(id);
    draw();
  }
  await load();
  return { update: load };
}

const unreadable = (runs) => h("ul", { class: "notes", "aria-label": "Runs that cannot be read" }, runs.map((run) => h("li", { class: "error" }, h("span", { text: `${run.name} cannot be read` }), h("span", { class: "faint", text: run.why }))));

const some = (key) => (runs) => runs.some((run) => run[key] !== null && run[key] !== undefined);

function columns(state, changed) {
  const boxes = new Map();  // run -> its tick box, which stays: the focus may be on it
  const box = (run) => h("input", {
    type: "checkbox", "aria-label": `Choose ${run.name}`,
    on: { change: (event) => { if (event.target.checked) state.chosen.add(run.id); else state.chosen.delete(run.id); changed(); } },
  });
  const choose = (_, run) => {
    if (!boxes.has(run.id)) boxes.set(run.id, box(run));
    const one = boxes.get(run.id);
    one.checked = state.chosen.has(run.id);
    return one;
  };
  return [
    { key: "chosen", title: "", sorts: false, format: choose },
    { key: "name", title: "run", text: true, format: (name, run) => h("span", null, h("a", { href: `#/run/${run.id}`, text: name }), run.group && !name.startsWith(`${run.group}/`) ? h("span", { class: "under", text: run.group }) : null) },
    { key: "state", title: "state", text: true, format: (text, run) => h("span", { class: `pill ${kind(run)}`, text }) },
    { key: "game", title: "game", text: true, format: (game, run) => h("span", null, game, h("span", { class: "under", text: `${run.algorithm} · seed ${run.seed}` })) },
    { key: "progress", title: "progress", value: (run) => run.fraction ?? 0, format: progress },
    { key: "nash_conv", title: "NashConv", only: some("nash_conv"), hint: "The newest; ≥ where it is a lower bound", format: (value, run) => (value === null || value === undefined ? "–" : `${run.exact ? "" : "≥ "}${number(value)}`) },
    { key: "return", title: "return in training", only: some("return"), format: (value) => number(value) },
    { key: "health", title: "health", text: true, value: (run) => 1000 * run.errors + run.warnings, format: health },
    { key: "began", title: "age", hint: "Since it began", value: (run) => (run.began === null ? null : -run.began), format: (_, { began }) => (began === null ? "–" : time(began, age(began))) },
  ];
}

// In its largest unit.
const age = (began) => span(Math.max(60, Date.now() / 1000 - began)).split(" ").slice(0, 2).join(" ");

function progress(_, run) {
  const share = run.fraction, busy = ["running", "paused", "stopping"].includes(kind(run));
  const text = run.generations === null || run.generations === undefined ? `generation ${whole(run.generation)}` : `${whole(run.generation)} of ${whole(run.generations)}`;
  const under = busy && run.seconds_left !== null && run.seconds_left !== undefined ? `${span(run.seconds_left)} left` : span(run.seconds);
  const policies = `${whole(run.policies)} ${run.policies === 1 ? "policy" : "policies"}`;
  return h("span", { class: "going-on" }, busy && share !== null && share !== undefined ? h("span", { class: "progress", "aria-hidden": "true" }, h("i", { style: { width: percent(share, 1) } })) : null, text, h("span", { class: "under", text: `${under} · ${policies}` }));
}

function health(_, run) {
  if (!run.warnings && !run.errors && ["failed", "interrupted"].includes(run.state)) return h("span", { class: "faint", text: "–" });
  if (!run.warnings && !run.errors) return h("span", { class: "well" }, icon("check"), " well");
  const counts = [[run.errors, "error"], [run.warnings, "warning"]].filter(([n]) => n);
  const text = counts.map(([n, what]) => `${n} ${what}${n > 1 ? "s" : ""}`).join(", ");
  return h("a", { class: run.errors ? "bad" : "warned", href: `#/run/${run.id}/log`, title: [text, run.last_note].filter(Boolean).join(": "), "aria-label": text }, icon("warning"), ` ${whole(run.errors + run.warnings)}`);
}
