// Who played against what was trained: ratings of people, and their last games.

import { card, empty, h, time } from "./dom.js";
import { number, table } from "./charts.js";
import { title } from "./grid.js";
import { called } from "./members.js";
import { ending, signed } from "./outcomes.js";

/** See app.js. */
export async function show(root, { source }) {
  const [{ people, games }, { runs }] = await Promise.all([source.get("people"), source.get("runs")]);
  const ids = new Map(runs.map((run) => [run.name, run.id]));
  root.append(h("header", { class: "page-head" }, h("h1", { text: "People" }), h("p", { class: "lead", text: "Everybody who sat down at a table on this machine. Their games are kept apart from the runs’ own results." })));
  if (!people.length) {
    root.append(empty("Nobody has played yet. Open a run and choose “Play”.", h("a", { href: "#/", text: "All runs" })));
    return {};
  }
  root.append(ratings(people), recent(games, ids));
  return {};
}

function ratings(people) {
  const made = card("Ratings", { hint: "From rated games only; with fewer than about ten games a rating says little." });
  const rated = people.some((person) => person.rating !== null);
  const columns = [
    { key: "name", title: "Name", text: true },
    ...(rated ? [{ key: "rating", title: "Rating", format: (value, person) => (value === null ? "–" : `${number(value, 3)} ± ${number(person.half_width, 2)}`) }] : []),
    { key: "games", title: "Games" }, { key: "won", title: "Won" }, { key: "drawn", title: "Drawn" }, { key: "lost", title: "Lost" },
  ];
  table(made.body, { columns, rows: people, sort: { key: rated ? "rating" : "games", down: true }, limit: 50 });
  return made.node;
}

function recent(games, ids) {
  const made = card("Last games");
  if (!games.length) made.body.append(empty("No game has ended yet."));
  else made.body.append(h("ul", { class: "game-list" }, games.map((game) => line(game, ids.get(game.run)))));
  return made.node;
}

function line(game, run) {
  const ends = game.returns.map((_, player) => ending(game.returns, player));
  return h("li", null,
    time(game.time),
    h("span", { class: "played", text: title(game.game) }),
    h("span", null, game.seats.flatMap((name, k) => [k ? h("span", { class: "soft", text: " against " }) : null, h(ends[k] === "won" ? "strong" : "span", { text: game.people[k] ? name : called(name) }), h("span", { class: "soft", text: ` ${signed(game.returns[k])}` })])),
    game.rated ? null : h("span", { class: "soft", text: "not rated" }), game.has_replay ? replayOf(game, run) : null);
}

function replayOf({ id }, run) {
  const name = encodeURIComponent(id);
  return run ? h("a", { href: `#/run/${run}/replay/${name}`, text: "Replay" }) : h("a", { href: `api/replays/${name}.html`, download: true, text: "Replay as a file" }); // its run is not here
}
