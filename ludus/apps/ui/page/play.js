// Laying a table: who sits where, with hints or without.

import { card, empty, h, icon, sentence, time } from "./dom.js";
import { called, defaultFor, joined, memberField, membersFor, names, playerName } from "./members.js";
import { signed } from "./outcomes.js";

const NAME_KEY = "ludus-name";

/** The name that was given last time on this machine, or "". */
function lastName() {
  try { return localStorage.getItem(NAME_KEY) || ""; } catch { return ""; }
}

function keepName(name) {
  try { localStorage.setItem(NAME_KEY, name); } catch { /* a private window: asked again next time */ }
}

/** See app.js. */
export async function show(root, { source, params, query, go }) {
  if (!source.may.play) {
    root.append(empty("Playing is off on this server. Start it with `ludus ui` on your own machine, or ask for an address that may play."));
    return {};
  }
  const base = `runs/${params.run}`;
  const [seats, replays] = await Promise.all([source.get(`${base}/seats`), source.get(`${base}/replays`).catch(() => [])]);
  if (params.run.startsWith("zoo-")) root.append(h("header", { class: "page-head" }, h("p", { class: "kicker" }, h("a", { href: "#/zoo", text: "Zoo" })), h("h1", { text: seats.run })));
  const form = layTable({ source, seats, run: params.run, query, go });
  root.append(form.node, watchGame(seats, params.run, go), params.run.startsWith("zoo-") ? "" : replayList(replays, params.run));
  if (query.get("start") === "1" && form.node.isConnected) {
    query.delete("start"); // who comes back here has not asked for another table
    history.replaceState(null, "", `#/run/${params.run}/play?${query}`);
    form.start();
  }
  return {};
}

function layTable({ source, seats, run, query, go }) {
  const wanted = names(query.get("seats"));
  const name = query.get("name") || lastName();
  const rows = [];
  for (const [k, player] of seats.players.entries()) {
    const own = wanted[k] ?? (k === 0 ? "person" : defaultFor(seats, k));
    const first = own === "person" && !rows.some((row) => row.isPerson());
    rows.push(seatRow({ player, k, seats, name: first ? name : "", wanted: own, onkind: nameSeats }));
  }
  const hints = h("input", { type: "checkbox", checked: Boolean(query.get("hints")), on: { change: fair } });
  const advisors = seats.members.filter((member) => member.advises);
  const adviser = memberField({ members: advisors, value: advisors.find((member) => member.name === query.get("hints"))?.name ?? seats.hints?.[0] ?? "", label: "Whose hints" });
  const by = h("label", { class: "adviser" }, h("span", { class: "soft", text: "by" }), adviser);
  const rated = h("input", { type: "checkbox", checked: query.get("rated") !== "0" });
  const seed = h("input", { type: "number", class: "field", min: 0, step: 1, placeholder: "any", value: query.get("seed"), on: { input: fair } });
  const said = h("p", { class: "said", role: "alert" });
  const button = h("button", { type: "submit", class: "more main" }, icon("play"), "Start the game");
  const made = card("Play", { hint: seats.human === false ? "People cannot play this game here. You can watch one below." : "Sit down against what was trained. Every seat may be yours, another person’s at this screen, or a policy’s." });
  const form = h("form", { class: "lay", on: { submit: (event) => { event.preventDefault(); start(); } } },
    h("div", { class: "seat-rows" }, rows.map((row) => row.node)),
    h("div", { class: "settings" },
      h("div", { class: "hints-by" }, tick(hints, "Hints", "how likely each move is, and what it is worth where that is known"), by),
      tick(rated, "Rated", "counts for your rating; not with hints or a seed"),
      h("label", { class: "seed" }, h("span", { text: "Seed" }), seed)),
    h("div", { class: "go" }, button, said));
  if (seats.human !== false) made.body.append(form);
  fair();
  nameSeats();

  /** What people are called who give no name: one alone is "You". */
  function nameSeats() {
    for (const row of rows) row.label(alone());
  }

  function alone() {
    return rows.filter((row) => row.isPerson()).length === 1;
  }

  // Who sees hints, or knows the cards beforehand, is not rated.
  function fair() {
    by.hidden = !hints.checked;
    rated.disabled = hints.checked || seed.value !== "";
    if (rated.disabled) rated.checked = false;
  }

  async function start() {
    said.textContent = "";
    button.disabled = true;
    const chosen = rows.map((row) => row.wish(alone()));
    try {
      const person = chosen.find((who) => who.who === "person");
      if (!person) throw new Error("choose “A person” for one of the seats, or watch a game below");
      if (!/^(You|Player \d+)$/.test(person.name)) keepName(person.name);
      const table = await source.post("tables", { run, seats: chosen, hints: hints.checked ? adviser.value : null, seed: seed.value === "" ? null : Number(seed.value), rated: rated.checked });
      const tokens = table.seats.map((seat) => seat.token).filter(Boolean);
      if (made.node.isConnected) go(`#/table/${table.table}?seat=${[...new Set(tokens)].join(",")}`);
    } catch (error) {
      said.textContent = sentence(error.message);
      button.disabled = false;
    }
  }
  return { node: made.node, start };
}

function tick(box, label, what) {
  return h("label", { class: "tick" }, box, h("span", null, h("strong", { text: label }), h("span", { class: "soft", text: ` ${what}` })));
}

function seatRow({ player, k, seats, name, wanted, onkind }) {
  const title = playerName(seats, k);
  const policy = memberField({ members: membersFor(seats, k), value: wanted === "person" ? defaultFor(seats, k) : wanted, label: `Policy in the seat of ${title}` });
  const person = h("input", { type: "text", class: "field", "aria-label": `Name of the person in the seat of ${title}`, maxlength: 40, value: name, autocomplete: "off" });
  const kind = h("select", { class: "field", "aria-label": `Who sits in the seat of ${title}`, on: { change: show } }, h("option", { value: "person", text: "A person" }), h("option", { value: "policy", text: "A policy" }));
  kind.value = wanted === "person" ? "person" : "policy";
  const node = h("div", { class: "seat-row", role: "group", "aria-label": title }, h("span", { class: `spot p${player.player}`, "aria-hidden": "true" }), h("strong", { text: title }), kind, person, policy);
  function show() {
    person.hidden = kind.value !== "person";
    policy.hidden = kind.value === "person";
    onkind();
  }
  const unnamed = (alone) => (alone ? "You" : `Player ${k + 1}`);
  show();
  return {
    node,
    isPerson: () => kind.value === "person",
    /** alone: whether no other person sits down. */
    wish: (alone) => (kind.value === "person" ? { who: "person", name: person.value.trim() || unnamed(alone) } : { who: policy.value }),
    label(alone) { person.placeholder = unnamed(alone); },
  };
}

function watchGame(seats, run, go) {
  const fields = seats.players.map((_, k) => memberField({ members: membersFor(seats, k), value: defaultFor(seats, k), label: `Policy of ${playerName(seats, k)} in the game to watch` }));
  const made = card("Watch a game", { hint: "Policies play one game now, and you step through it." });
  made.body.append(h("form", { class: "lay watch", on: { submit: (event) => { event.preventDefault(); go(`#/run/${run}/show?seats=${encodeURIComponent(joined(fields.map((field) => field.value)))}`); } } },
    fields.map((field, k) => h("div", { class: "seat-row" }, h("span", { class: `spot p${seats.players[k].player}`, "aria-hidden": "true" }), h("strong", { text: playerName(seats, k) }), field)),
    h("div", { class: "go" }, h("button", { type: "submit", class: "more" }, icon("play"), "Show me a game"),
      h("button", { type: "button", class: "more", text: "List episodes", on: { click: () => go(`#/run/${run}/episodes?seats=${encodeURIComponent(joined(fields.map((field) => field.value)))}`) } }))));
  return made.node;
}

function replayList(replays, run) {
  const made = card("Recorded games");
  if (!replays.length) made.body.append(empty("None yet. `ludus record RUN --keep` records games, and so does “Save” at a game that you watch."));
  else made.body.append(h("ul", { class: "replay-list" }, replays.map((replay) => replayLine(replay, run))));
  return made.node;
}

function replayLine(replay, run) {
  const seats = (replay.seats ?? []).map((name, k) => (replay.people?.[k] ? name : called(name))).join(" against ");
  const told = [`${replay.steps} moves`, replay.returns?.map(signed).join(" : ")];
  return h("li", null, h("a", { href: `#/run/${run}/replay/${encodeURIComponent(replay.id)}`, text: seats || replay.name || "A game" }), h("span", { class: "soft" }, replay.created ? [time(replay.created), " · "] : null, told.filter(Boolean).join(" · ")));
}
