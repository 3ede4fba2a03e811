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
  root.append(h("header", { class: "page-head" }, h("h1", { text: "People" }), h("p", { class: "lead", text: "People who played at a table on this machine. Their games do not count in the runs’ results." })));
  if (!people.length) {
    root.append(empty("No game has been played yet. Open a run and choose “Play”.", h("a", { href: "#/", text: "All runs" })));
    return {};
  }
  root.append(ratings(people), recent(games, ids));
  return {};
}

function ratings(people) {
  const made = card("Ratings", { hint: "Of each game, from rated games only; with fewer than about ten games a rating says little." });
  for (const game of new Set(people.map((person) => person.game))) {
    const place = h("div");
    made.body.append(h("h3", { class: "of-game", text: title(game) }), place);
    ratingsOf(place, title(game), people.filter((person) => person.game === game));
  }
  return made.node;
}

// Where what one earns is not another's loss, nobody wins: the mean return stands in place of a rating.
function ratingsOf(place, game, rows) {
  const rated = rows.some((person) => person.rating !== null), won = rows.some((person) => person.won || person.drawn || person.lost);
  const columns = [
    { key: "name", title: "Name", text: true },
    ...(rated ? [{ key: "rating", title: "Rating", format: (value, person) => (value === null ? "–" : `${number(value, 3)} ± ${number(person.half_width, 2)}`) }] : []),
    { key: "games", title: "Rated games" },
    ...(won ? [{ key: "won", title: "Won" }, { key: "drawn", title: "Drawn" }, { key: "lost", title: "Lost" }] : []),
    { key: "mean", title: "Mean return", format: signed }, { key: "unrated", title: "Games not rated" },
  ];
  table(place, { columns, rows, sort: { key: rated ? "rating" : "games", down: true }, limit: 50, label: `Ratings in ${game}` });
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
    h("span", null, game.seats.flatMap((name, k) => [k ? h("span", { class: "soft", text: " against " }) : null, h(game.zero_sum && ends[k] === "won" ? "strong" : "span", { text: game.people[k] ? name : called(name) }), h("span", { class: "soft", text: ` ${signed(game.returns[k])}` })])),
    game.rated ? null : h("span", { class: "soft", text: "not rated" }), game.has_replay ? replayOf(game, run) : null);
}

function replayOf({ id }, run) {
  const name = encodeURIComponent(id);
  return run ? h("a", { href: `#/run/${run}/replay/${name}`, text: "Replay" }) : h("a", { href: `api/replays/${name}.html`, download: true, text: "Replay as a file" }); // its run is not here
}
