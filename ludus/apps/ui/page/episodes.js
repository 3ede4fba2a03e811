// Episodes of a profile: how the game of each seed ended, filtered by that, and each to be stepped through.

import { announce, card, empty, h, picker, sentence } from "./dom.js";
import { table } from "./charts.js";
import { called, defaultFor, joined, memberField, membersFor, names, playerName } from "./members.js";
import { ending, signed } from "./outcomes.js";

const STEP = 10; // episodes that are played at a time

/** See app.js. */
export async function show(root, { source, params: { run }, query, go }) {
  const seats = await source.get(`runs/${run}/seats`);
  const players = [...seats.players.keys()];
  const asked = names(query.get("seats"));
  const wanted = players.map((k) => asked[k] ?? (asked.length === 1 ? asked[0] : defaultFor(seats, k)));
  const who = wanted.map((name, k) => (name === "person" ? defaultFor(seats, k) : name));
  const state = { lines: [], kept: 0, zeroSum: false, left: false };
  const made = card("Episodes", { hint: "Policies play one game for each seed. A seed shows the same game again, so the address of a game can be kept." });
  const fields = players.map((k) => memberField({ members: membersFor(seats, k), value: who[k], label: `Policy of ${playerName(seats, k)}`, onpick: choose }));
  const more = h("button", { type: "button", class: "more", on: { click: load } });
  const said = h("p", { class: "said", role: "alert" });
  const filters = h("div", { class: "episode-filter" }), place = h("div");
  made.body.append(h("div", { class: "lay watch" }, players.map((k) => h("div", { class: "seat-row" }, h("span", { class: `spot p${k % 8}`, "aria-hidden": "true" }), h("strong", { text: playerName(seats, k) }), fields[k]))),
    filters, place, h("div", { class: "go" }, more, said));
  root.append(made.node);
  await load();
  return { close() { state.left = true; } };

  function choose() {
    go(`#/run/${run}/episodes?seats=${encodeURIComponent(joined(fields.map((field) => field.value)))}`);
  }

  async function load() {
    more.disabled = true;
    more.textContent = "Playing …";
    said.textContent = "";
    try {
      const target = state.lines.length + STEP;
      while (state.lines.length < target && !state.left) await play(target - state.lines.length); // an answer has what is played in some seconds
      announce(`${state.lines.length} episodes.`);
    } catch (error) {
      said.textContent = sentence(error.message);
    }
    more.disabled = false;
    more.textContent = `${STEP} more episodes`;
  }

  async function play(many) {
    const { zero_sum: zeroSum, repeats, episodes } = await source.post(`runs/${run}/episodes`, { seats: who, first: state.lines.length, many });
    state.lines.push(...episodes);
    state.zeroSum = zeroSum && players.length > 1;
    if (!repeats) made.hint.textContent = "Policies play one game for each seed. This environment does not repeat its episodes: a game that is opened is another one.";
    draw();
  }

  // [[name, whether an episode is of it]]: all, and by who won.
  function kinds() {
    const all = ["All", () => true];
    if (!state.zeroSum) return [all];
    const won = players.map((k) => [`${playerName(seats, k)} won`, (line) => ending(line.returns, k) === "won"]);
    return [all, ...won, ["Drawn", (line) => players.every((k) => ending(line.returns, k) !== "won")]];
  }

  function draw() {
    const choices = kinds();
    const labels = choices.map(([name, has]) => `${name} (${state.lines.filter(has).length})`);
    filters.replaceChildren(choices.length > 1 ? picker("Result", labels, state.kept, (k) => { state.kept = k; draw(); }) : "");
    const rows = state.lines.filter(choices[state.kept][1]);
    if (!rows.length) return place.replaceChildren(empty("No episode ended so. Play more of them."));
    const address = (line) => `#/run/${run}/show?seats=${encodeURIComponent(joined(who))}&seed=${line.seed}`;
    table(place, { label: "Episodes", rows, limit: 50, id: (line) => line.seed, columns: [
      { key: "seed", title: "Seed", format: (seed, line) => h("a", { href: address(line), text: String(seed), "aria-label": `The game of seed ${seed}` }) },
      { key: "seats", title: "Policies", text: true, value: (line) => line.seats.map(called).join(", ") },
      ...players.map((k) => ({ key: `return${k}`, title: players.length > 1 ? playerName(seats, k) : "Return", hint: "Return", value: (line) => line.returns[k], format: (value, line) => h(state.zeroSum && ending(line.returns, k) === "won" ? "strong" : "span", { text: signed(value) }) })),
      { key: "steps", title: "Moves" },
    ] });
  }
}
