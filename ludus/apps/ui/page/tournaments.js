// Tournaments: the list of them, and one: its leaderboard, and who wins how often against whom.

import { card, empty, h, time } from "./dom.js";
import { number, percent, table, whole } from "./charts.js";
import { diverging } from "./colours.js";
import { title } from "./grid.js";
import { shortNames } from "./names.js";
import { signed } from "./outcomes.js";

const AGAIN = 10000; // milliseconds between two looks at a tournament, which may go on
const PALE = 0.6; // of a cell's colour, so that the number on it can be read

/** See app.js. Without a tournament in the address it is the list. */
export async function show(root, { source, params }) {
  const [address, draw] = params.tournament ? [`tournaments/${params.tournament}`, tournament] : ["tournaments", list];
  const state = { told: "" };
  async function load() {
    const data = await source.get(address);
    const text = JSON.stringify(data);
    if (text === state.told) return;
    state.told = text;
    root.replaceChildren(...draw(data));
  }
  await load();
  const timer = setInterval(() => { if (!document.hidden) load().catch(() => {}); }, AGAIN); // a server that is lost has its banner
  return { close() { clearInterval(timer); } };
}

// ------------------------------------------------------------------------------------------------------------ the list

function list(lines) {
  const head = h("header", { class: "page-head" }, h("h1", { text: "Tournaments" }), h("p", { class: "lead" }, "Results of ", h("code", { text: "ludus tournament" }), "."));
  if (!lines.length) return [head, empty("No tournaments yet. `ludus tournament RUN RUN bot:random` plays one, in ./tournaments; it appears here.")];
  const made = h("section", { class: "card", "aria-label": "Tournaments" });
  const columns = [
    { key: "name", title: "Tournament", text: true, format: (name, line) => (line.error ? h("span", null, name, h("span", { class: "under bad", text: line.error })) : h("a", { href: `#/tournament/${line.id}`, text: name })) },
    { key: "game", title: "Game", text: true, format: title },
    { key: "entrants", title: "Entrants" }, { key: "episodes", title: "Episodes", format: whole },
    { key: "best", title: "First", text: true },
    { key: "last", title: "Newest result", format: (last) => (last ? time(last) : "–") },
  ];
  table(made, { columns, rows: lines, sort: { key: "last", down: true }, limit: 100, label: "Tournaments", id: (line) => line.id });
  return [head, made];
}

// ------------------------------------------------------------------------------------------------------------ one tournament

function tournament(view) {
  const facts = [title(view.game), `${view.rows.length} entrants`, `${whole(view.episodes)} episodes`];
  const head = h("header", { class: "page-head" }, h("p", { class: "kicker" }, h("a", { href: "#/tournaments", text: "Tournaments" })), h("h1", { text: view.name }),
    h("p", { class: "lead" }, `${facts.join(" · ")} · `, time(view.last)));
  return [head, leaderboard(view), ...(view.rows.length > 1 && view.pairs.some((row) => row.some(Boolean)) ? [winRates(view)] : [])];
}

const RATINGS = { bradley_terry: "Bradley–Terry", elo: "Elo" };

function leaderboard(view) {
  const rated = view.rows.some((row) => row.rating !== null), won = view.rows.some((row) => row.win_rate !== null && row.wins + row.draws + row.losses > 0);
  const by = view.order === "mean return" ? "mean return" : "rating";
  const made = card("Leaderboard", { hint: `Ordered by ${by}. Rank 1–3: the entrant’s 95% interval leaves these ranks open.` });
  const columns = [
    { key: "ranks", title: "Rank", value: (row) => row.ranks?.[0] ?? null, format: (_, row) => rankText(row.ranks), hint: "From one more than have their whole interval above it, to the number whose intervals reach it" },
    { key: "name", title: "Entrant", text: true, format: (name, row) => h("span", null, name, row.detail && row.detail !== name ? h("span", { class: "under", text: row.detail }) : null) },
    ...(rated ? [{ key: "rating", title: RATINGS[view.rating] ?? view.rating, hint: "With its 95% interval", format: (value, row) => (value === null ? "–" : `${number(value, 4)}${row.low === null ? "" : ` [${number(row.low, 4)}, ${number(row.high, 4)}]`}`) }] : []),
    { key: "mean", title: "Mean return", hint: "Against all others, each pair with equal weight; 95% interval", format: (value, row) => (value === null ? "–" : `${signed(value)}${row.half_width === null ? "" : ` ± ${number(row.half_width, 2)}`}`) },
    ...(won ? [
      { key: "win_rate", title: "Win rate", hint: "Won and half of the drawn episodes, of all", format: (value) => percent(value, 1) },
      { key: "wins", title: "Won · drawn · lost", format: (_, row) => `${whole(row.wins)} · ${whole(row.draws)} · ${whole(row.losses)}` },
    ] : []),
  ];
  const place = h("div");
  made.body.append(place, ...view.notes.map((note) => h("p", { class: "hint", text: note })));
  table(place, { columns, rows: view.rows.map((row, k) => ({ ...row, place: k })), limit: 100, label: "Leaderboard", id: (row) => row.name });
  return made.node;
}

const rankText = (ranks) => (ranks === null ? "–" : ranks[0] === ranks[1] ? String(ranks[0]) : `${ranks[0]}–${ranks[1]}`);

/** Two players' win rates; with more players, or none who wins, the mean returns. */
function winRates(view) {
  const rows = view.rows.slice(0, view.pairs.length), names = shortNames(rows.map((row) => row.name));
  const counted = view.pairs.some((row) => row.some((pair) => pair && pair.wins + pair.draws + pair.losses > 0));
  const means = view.pairs.flat().filter((pair) => pair?.mean !== null && pair !== null).map((pair) => Math.abs(pair.mean));
  const reach = Math.max(...means, 0) || 1;
  const made = card(counted ? "Win rates" : "Mean returns", { hint: `The row’s entrant against the column’s, over all seats${counted ? ": won and half of the drawn episodes. Red is above one half, blue below." : ". Red is above 0, blue below."}` });
  const head = h("tr", null, h("td"), names.map((name, k) => h("th", { scope: "col", title: rows[k].name, text: name })));
  const body = view.pairs.map((pairs, i) => h("tr", null, h("th", { scope: "row", class: "text", title: rows[i].name, text: names[i] }), pairs.map((pair, j) => cell(pair, rows[i].name, rows[j].name))));
  function cell(pair, row, column) {
    if (!pair) return h("td", { class: "faint", text: row === column ? "" : "–" });
    const n = pair.wins + pair.draws + pair.losses, rate = n ? (pair.wins + pair.draws / 2) / n : null;
    const mean = pair.mean === null ? "" : `mean return ${signed(pair.mean)}${pair.half_width === null ? "" : ` ± ${number(pair.half_width, 2)}`}`;
    const tip = [`${row} against ${column}`, n ? `${whole(pair.wins)} won, ${whole(pair.draws)} drawn, ${whole(pair.losses)} lost` : "", mean].filter(Boolean).join("\n");
    const made = h("td", { class: "rate", title: tip, text: counted ? percent(rate) : signed(pair.mean) });
    made.style.background = diverging(PALE * (counted ? 2 * (rate ?? 0.5) - 1 : pair.mean / reach));
    return made;
  }
  const left = view.rows.length - rows.length;
  made.body.append(h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": made.node.querySelector("h2").textContent }, h("table", { class: "win-rates" }, h("thead", null, head), h("tbody", null, body))),
    left > 0 ? h("p", { class: "hint", text: `The best ${rows.length} are shown, ${left} more are not.` }) : "");
  return made.node;
}
