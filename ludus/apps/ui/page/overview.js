// The first page of a run: the five answers, and below them NashConv in detail, who leads, what went wrong.

import { card, clear, empty, h, picker, sentence, time, write } from "./dom.js";
import { answers } from "./answers.js";
import { lines, number, table, whole } from "./charts.js";
import { colour } from "./colours.js";
import { drawnBy, policyLink } from "./links.js";
import { interval, probability } from "./measured.js";
import { cards } from "./panels.js";
import { counted } from "./statistics.js";

export async function show(root, { source, params }) {
  const ranking = leaders(params.run);
  root.append(h("h2", { class: "unseen", text: "Overview" }));
  const parts = [
    ...answers({ run: params.run, source }),
    { panel: "overview", ...warnings() },
    { panel: "convergence", ...nashConv() },
    { panel: "ranking", ...ranking },
    { panel: "overview", node: ranking.node, set: ranking.about },
    { panel: "statistics", ...counted() },
    { panel: "replays", ...recorded(params.run) },
    { panel: "overview", ...facts() },
  ];
  return cards(root, { source, run: params.run, parts, first: ["answers", "overview"] });
}

const AT_FIRST = 3;  // warnings that are shown before one asks for more

function warnings() {
  const { node, body } = card("Warnings");
  const list = h("ul", { class: "notes" });
  const all = h("button", { type: "button", class: "more", on: { click: () => { open = true; draw(); } } });
  let open = false, notes = [];
  body.append(list, all);
  const draw = () => {
    const newest = [...notes].reverse(), shown = open ? newest : newest.slice(0, AT_FIRST);
    clear(list).append(...shown.map((note) => h("li", { class: note.level }, time(note.time), h("span", { text: `${note.kind}: ${note.text}` }))));
    all.hidden = open || newest.length <= AT_FIRST;
    write(all, `Show all ${whole(newest.length)}`);
  };
  return { node, set(overview) { notes = overview.notes; node.hidden = !notes.length; draw(); } };
}

// ------------------------------------------------------------------------------------------------------------ charts

const OVER = [["generation", "generations"], ["seconds", "seconds"], ["episodes", "episodes"]];

function nashConv() {
  const { node, head, hint, body } = card("NashConv");
  const place = h("div"), said = h("p", { class: "soft", role: "status" }), state = { over: 0, log: true, data: null };
  const over = picker("Over", OVER.map(([, title]) => title), 0, (k) => { state.over = k; draw(); });
  const scale = picker("Scale", ["log", "linear"], 0, (k) => { state.log = k === 0; draw(); });
  head.append(h("div", { class: "tools" }, over, scale));
  let chart = null;

  function draw() {
    const data = state.data;
    node.hidden = !data.nash_conv.length;  // of a game that is too large for it, or before the first generation
    if (node.hidden) {
      chart?.destroy();
      chart = null;
      return;
    }
    write(hint, `${data.exact ? "" : "A lower bound, from approximate best responses. "}The sum of what each player could gain by a best response to the meta-strategies: 0 at an equilibrium.`);
    if (!chart) {
      clear(body).append(place, said);
      clear(place);
    }
    const [key, title] = OVER[state.over], { total, gains, log, note } = onAxis(data, state.log);
    write(said, note);
    said.hidden = !note;
    const shown = {
      x: data[key], xTitle: title, yTitle: data.exact ? "NashConv" : "NashConv, at least", log, whole: key !== "seconds", note,
      series: [
        { name: data.exact ? "NashConv" : "NashConv, at least", values: total, colour: () => colour(0), width: 2.5 },
        ...gains.map((values, player) => ({ name: `gain of player ${player}`, values, colour: () => colour(player + 1), width: 1.25 })),
      ],
    };
    if (chart) chart.set(shown);
    else chart = lines(place, shown);
  }
  return { node, set(data) { state.data = data; draw(); }, close: () => chart?.destroy() };
}

const ROUNDING = 1e-9;  // of the largest NashConv: what is smaller is 0, but for how computers count

// NashConv and the gains as they are drawn, on a logarithmic axis where any NashConv is above 0; else a note says why not. charts.js draws zeros at its lower edge.
export function onAxis({ nash_conv, gains }, wanted) {
  const largest = Math.max(0, ...nash_conv);
  const settled = (values) => values.map((v) => (v !== null && Math.abs(v) < ROUNDING * largest ? 0 : v));
  const total = settled(nash_conv), above = total.some((v) => v > 0);
  const why = total.every((v) => v === null || v === 0) ? "NashConv is 0 in every generation" : "No NashConv is above 0";
  return { total, gains: gains.map(settled), log: wanted && above, note: wanted && !above ? `${why}, so the axis is linear.` : "" };
}

// ------------------------------------------------------------------------------------------------------------ tables

function leaders(run) {
  const { node, head, hint, body } = card("Ranking");
  const state = { tables: [], at: 0 };
  let chooser = null, grid = null, drawn = "";

  function draw() {
    const { population, players, rows } = state.tables[state.at];
    body.className = players.length === 1 ? `p${players[0] % 8}` : "";
    const rated = rows.some((row) => row.rating !== null), key = `${population} ${rated} ${rows.some((row) => row.half_width != null)}`;
    if (grid && drawn === key) return grid.set(rows);
    drawn = key;
    grid = table(clear(body), {
      label: "Ranking", rows, limit: 10, sort: { key: "mean", down: true }, id: (row) => row.policy,
      columns: [
        { key: "place", title: "place", unseen: true, sorts: false, value: (row) => rows.indexOf(row), format: (_, __, place) => h("span", { class: "faint", text: String(place + 1) }) },
        { key: "policy", title: "policy", text: true, format: (name) => policyLink(run, population, name) },
        { key: "mean", title: "mean return", format: (value, row) => interval(value, row.half_width) },
        ...(rated ? [{ key: "rating", title: "Elo", format: (value, row) => interval(value, row.rating_half_width) }] : []),
        { key: "probability", title: "probability", format: probability },
        { key: "generation", title: "generation" },
        { key: "start", title: "started from", text: true },
      ],
    });
    return undefined;
  }
  return {
    node,
    about({ info }) {
      const alone = info.population.length === 1;  // it has no opponents, and nothing is mixed
      write(hint, alone ? "Mean return of the episodes that were played to evaluate it." : "Mean return against the last meta-strategy of the other players, with its interval where it was played and not computed.");
    },
    set(tables) {
      state.tables = tables.filter((one) => one.rows.length);
      hint.hidden = !state.tables.length;
      if (!state.tables.length) return void clear(body).append(empty("No policy has been added yet."));
      state.at = Math.min(state.at, state.tables.length - 1);
      if (!chooser && state.tables.length > 1) {
        chooser = picker("Population", state.tables.map(drawnBy), state.at, (k) => { state.at = k; draw(); });
        head.append(chooser);
      }
      draw();
    },
  };
}

function recorded(run) {
  const { node, body } = card("Replays", { hint: "Games that were recorded beside this run, to be stepped through." });
  let grid = null;
  return {
    node,
    set(rows) {
      node.hidden = !rows.length;
      if (grid) return void grid.set(rows);
      if (!rows.length) return;
      grid = table(body, {
        label: "Replays", rows, limit: 10, sort: { key: "created", down: true }, id: (row) => row.id,
        columns: [
          { key: "name", title: "game", text: true, format: (name, row) => h("a", { href: `#/run/${run}/replay/${row.id}`, text: name || row.seats.join(" against ") }) },
          { key: "steps", title: "steps", format: whole },
          { key: "returns", title: "returns", sorts: false, format: (values) => values.map((value) => number(value)).join(", ") },
          { key: "created", title: "recorded", format: (seconds) => time(seconds) },
        ],
      });
    },
  };
}

function facts() {
  const { node, body } = card("Run");
  const list = h("dl"), text = h("pre", { tabindex: "0" }), scenario = h("details", null, h("summary", { text: "Scenario" }), text);
  body.append(list, scenario);
  return {
    node,
    set({ info, state, summary }) {
      const entries = [
        ["Scenario", info.scenario], ["Environment", info.env], ["Algorithm", info.algorithm], ["Players", String(info.population.length)],
        ["Seed", String(info.seed)], ["Ludus", info.version], ["State", state],
        ...(summary?.places?.length ? [["Learned on", summary.places.join("; ")]] : []),
      ];
      clear(list).append(...entries.map(([term, told]) => h("div", null, h("dt", { text: term }), h("dd", { text: told }))));
      scenario.hidden = !info.text;
      write(text, info.text);
    },
  };
}
