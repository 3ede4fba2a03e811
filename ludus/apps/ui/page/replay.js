// A game that was played, to be stepped through: what everybody saw, what every policy thought, what was paid.

import { card, h, icon, sentence, write } from "./dom.js";
import { atBoard, placeOf, showBoard } from "./boards.js";
import { number } from "./charts.js";
import { curves } from "./curves.js";
import { title } from "./grid.js";
import { called, names } from "./members.js";
import { ending, signed } from "./outcomes.js";
import { stoneIcon } from "./pieces.js";
import { thoughts } from "./thoughts.js";

const SPEEDS = [0.5, 1, 2, 4];
const FILES = ["html", "json", "gif", "mp4"]; // that a replay is saved as
const SOON = 300; // milliseconds after which the address names the move
const PACE = { frame: 1 / 15 }; // seconds a position is shown at speed 1; others: a second

/** See app.js. */
export async function show(root, { source, params, query, go }) {
  const wanted = { seats: names(query.get("seats")), seed: query.get("seed") ? Number(query.get("seed")) : null };
  const replay = await load(source, params, wanted);
  const page = replayPage(root, replay, { source, run: params.run, wanted, go, at: Number(query.get("move") ?? 0) });
  return { close: page.close };
}

async function load(source, params, wanted) {
  if (params.replay) return { id: params.replay, ...await source.get(`runs/${params.run}/replays/${encodeURIComponent(params.replay)}`) };
  return wanted.seats.length ? source.post(`runs/${params.run}/show`, wanted) : source.get("replay");
}

// A person is called as they like, a policy as people call it.
const seatName = (seat) => (seat.person ? seat.name : called(seat.name));

function replayPage(root, first, { source, run, wanted, go, at }) {
  let replay = first;
  const local = { at: 0, viewer: null, whose: 0, speed: 1, timer: null, onBoard: true, naming: null };
  const made = layOut(root, { run, toggle, step, to });
  const board = showBoard(made.board, { choose: () => {} });
  made.slider.addEventListener("input", () => to(Number(made.slider.value)));
  made.speed.addEventListener("change", () => { local.speed = Number(made.speed.value); });
  made.viewer.addEventListener("change", () => { local.viewer = made.viewer.value === "" ? null : Number(made.viewer.value); draw(); });
  made.onBoard.addEventListener("change", () => { local.onBoard = made.onBoard.checked; draw(); });
  made.whose.addEventListener("change", () => { local.whose = Number(made.whose.value); draw(); });
  const chart = curves(made.curves);
  document.addEventListener("keydown", onkey);
  begin(at);

  function begin(place) {
    const seats = replay.seats.map((seat) => seatName(seat)).join(" against ");
    write(made.heading, run ? seats : title(replay.game));
    write(made.told, [run ? title(replay.game) : seats, `${replay.frames.length - 1} moves`, replay.seed === null ? "" : `seed ${replay.seed}`].filter(Boolean).join(" · "));
    made.slider.max = replay.frames.length - 1;
    const several = replay.frames.some((frame) => frame.board_of);
    made.viewing.hidden = !several;
    made.viewer.replaceChildren(h("option", { value: "", text: "everything" }), ...replay.seats.map((seat) => h("option", { value: seat.player, text: `what ${seatName(seat)} sees` })));
    local.viewer = null;
    made.moves.replaceChildren(...replay.frames.map(moveLine));
    drawLinks();
    chart.set(replay, nameOf);
    to(Math.min(Math.max(0, place || 0), replay.frames.length - 1), false);
  }

  function moveLine(frame, k) {
    const text = k === 0 ? "The start" : madeBy(frame.last).map(([player, labels]) => `${nameOf(player)}: ${labels}`).join(", ") || "…";
    return h("li", null, h("button", { type: "button", on: { click: () => to(k) } }, frame.last.length ? h("span", { class: `spot small p${frame.last[0].player % 8}`, "aria-hidden": "true" }) : null, text));
  }

  function nameOf(player) {
    const seat = replay.seats.find((one) => one.player === player);
    return seat ? seatName(seat) : `player ${player}`;
  }

  function drawLinks() {
    const id = source.live ? replay.id : null;
    const files = id ? FILES.map((kind) => h("a", { class: "more", href: `api/replays/${encodeURIComponent(id)}.${kind}?run=${run}`, download: true }, icon("download"), kind.toUpperCase())) : [];
    const shown = source.live && wanted.seats.length > 0;
    const said = h("span", { class: "said", role: "status" });
    const keep = shown && replay.saves !== false && h("button", { type: "button", class: "more", on: { click: () => ask(keep, said, save) } }, icon("save"), "Save");
    const another = shown && h("button", { type: "button", class: "more", on: { click: () => ask(another, said, playAnother) } }, icon("again"), "Another game");
    const link = source.live && h("button", { type: "button", class: "more", text: "Copy link", title: "The address of this move", on: { click: () => ask(link, said, copyLink) } });
    made.links.replaceChildren(...[another, keep, link, ...files, said].filter(Boolean));
  }

  async function save(said) {
    await source.post(`runs/${run}/keep`, { replay: replay.id });
    write(said, "Saved to the recorded games.");
  }

  async function copyLink(said, button) {
    nameMove();
    await navigator.clipboard.writeText(location.href);
    write(said, `The link to move ${local.at} is copied.`);
    button.disabled = false;
  }

  /** The address is that of the game and the move that are shown: with its seed a game of policies is the same one again. */
  function nameMove() {
    clearTimeout(local.naming);
    if (!source.live) return;
    const [path, text = ""] = location.hash.split("?", 2);
    const query = new URLSearchParams(text);
    query.set("move", local.at);
    if (wanted.seats.length) query.set("seed", replay.seed);
    history.replaceState(history.state, "", `${path}?${query}`);
  }

  async function playAnother() {
    replay = await source.post(`runs/${run}/show`, { ...wanted, seed: null });
    begin(0);
  }

  async function ask(button, said, what) {
    button.disabled = true;
    write(said, "");
    try {
      await what(said, button);
    } catch (error) {
      write(said, sentence(error.message));
      button.disabled = false;
    }
  }

  // ------------------------------------------------------------------------------------------------- going through it

  function to(place, animate = true) {
    const next = Math.max(0, Math.min(replay.frames.length - 1, place));
    const forth = animate && next === local.at + 1;
    local.at = next;
    if (next === replay.frames.length - 1) stop();
    draw(forth);
    clearTimeout(local.naming);
    if (local.timer === null) local.naming = setTimeout(nameMove, SOON);
  }

  function step(by) {
    stop();
    to(local.at + by);
  }

  function toggle() {
    if (local.timer !== null) return stop();
    if (local.at === replay.frames.length - 1) to(0, false);
    local.timer = setTimeout(tick, 0);
    write(made.playing, "Pause");
    made.play.firstElementChild.replaceWith(icon("pause"));
  }

  function tick() {
    local.timer = setTimeout(tick, (1000 * (PACE[replay.frames[local.at].board.kind] ?? 1)) / local.speed);
    to(local.at + 1);
  }

  function stop() {
    clearTimeout(local.timer);
    local.timer = null;
    write(made.playing, "Play");
    made.play.firstElementChild.replaceWith(icon("play"));
  }

  function onkey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=checkbox]), select, [role=grid]")) return;
    const moves = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => { stop(); to(0); }, End: () => to(replay.frames.length - 1) };
    if (event.key === " " && !event.target.closest?.("button, summary, input")) toggle();
    else if (moves[event.key]) moves[event.key]();
    else return;
    event.preventDefault();
  }

  // ------------------------------------------------------------------------------------------------- what is seen

  function draw(animate = false) {
    const frame = replay.frames[local.at];
    const seen = frame.decisions.filter((one) => local.viewer === null || one.player === local.viewer);
    const decision = seen[local.whose] ?? seen[0] ?? null;
    drawWhose(seen, decision);
    const shown = local.viewer === null ? frame.board : frame.board_of?.[local.viewer] ?? frame.board;
    const weights = local.onBoard && decision?.probs ? new Map(decision.legal.map((move, k) => [move.action, decision.probs[k]])) : null;
    board.set(shown, {
      legal: decision?.legal ?? [], can: false, watching: true, weights,
      ...atBoard(replay.board_seats, { player: local.viewer, decision: local.viewer === null ? null : decision, names: replay.seats.map((seat) => seatName(seat)), turn: frame.to_move, decisions: frame.decisions }),
      chosen: decision?.chosen ?? null, over: Boolean(frame.over), box: null, keys: null, hold: false, animate,
    });
    drawWhere(frame);
    drawSeats(frame);
    drawThoughts(frame, seen, decision);
    drawEnd(frame);
    chart.mark(local.at);
  }

  /** Whose probabilities the board and the buttons show, where several decide at once. */
  function drawWhose(seen, decision) {
    made.whose.hidden = made.of.hidden = seen.length < 2;
    if (made.whose.hidden) return;
    const names = seen.map((one) => (several(seen, one) ? `${nameOf(one.player)}, ${agentName(one)}` : nameOf(one.player)));
    if (made.whose.childElementCount !== names.length || names.some((name, k) => made.whose.children[k].textContent !== name)) {
      made.whose.replaceChildren(...names.map((name, k) => h("option", { value: k, text: name })));
    }
    made.whose.value = String(seen.indexOf(decision));
  }

  function drawWhere(frame) {
    const what = madeBy(frame.last).map(([player, labels]) => `${nameOf(player)} played ${labels}`).join(", ");
    const text = `${local.at} of ${replay.frames.length - 1}`;
    made.slider.value = local.at;
    made.slider.setAttribute("aria-valuetext", `move ${text}${what ? `: ${what}` : ""}`);
    write(made.where, text);
    write(made.status, frame.over ? verdict(frame) : what || "The start");
    made.moves.querySelector(":scope > .at")?.classList.remove("at");
    const here = made.moves.children[local.at];
    here?.classList.add("at");
    if (here) made.moves.scrollTop = here.offsetTop - made.moves.clientHeight / 2;
    made.back.disabled = made.start.disabled = local.at === 0;
    made.forth.disabled = made.end.disabled = local.at === replay.frames.length - 1;
  }

  function verdict(frame) {
    const won = replay.seats.filter((seat) => ending(frame.returns, seat.player) === "won");
    const how = { terminated: "", truncated: " (the time limit)" }[frame.over] ?? ` (${frame.over})`;
    if (replay.seats.length < 2) return `The end, with ${signed(frame.returns[0])}${how}`;
    if (replay.zero_sum === false) return `The game is over${how}`;
    return `${won.length === 1 ? `${seatName(won[0])} won` : "A draw"}${how}`;
  }

  function drawSeats(frame) {
    made.seats.replaceChildren(...replay.seats.map((seat) => h("div", { class: `sitter${frame.to_move.includes(seat.player) ? " turn" : ""}` },
      stoneIcon(frame.board, placeOf(replay.board_seats, seat.player)) ?? h("span", { class: `spot p${seat.player % 8}`, "aria-hidden": "true" }),
      h("div", { class: "names" }, h("strong", { text: seatName(seat) }), seat.mode && seat.mode !== "explore" ? h("span", { class: "soft", text: `mode: ${seat.mode}` }) : null),
      h("b", { class: "score", "aria-label": `return so far ${signed(frame.returns[seat.player])}`, text: signed(frame.returns[seat.player]) }))));
  }

  function drawThoughts(frame, seen, decision) {
    if (!decision) return made.thoughts.replaceChildren();
    const critic = decision.value === null || decision.value === undefined ? "" : ` ${criticSays(decision.value)}`;
    const part = card(nameOf(decision.player), { hint: `${several(seen, decision) ? `${capital(agentName(decision))}. ` : ""}Plays ${decision.label}.${critic}` });
    if (decision.probs || decision.values) part.body.append(thoughts(decision));
    if (decision.output) part.body.append(h("details", { open: true }, h("summary", { text: "What the agent wrote" }), h("pre", { class: "said-by-agent", text: decision.output })));
    if (decision.information) part.body.append(h("details", null, h("summary", { text: "What it sees" }), h("pre", { text: decision.information })));
    const others = seen.filter((one) => one !== decision);
    if (others.length) part.body.append(h("details", null, h("summary", { text: others.length === 1 ? "1 other decision" : `${others.length} other decisions` }),
      h("ul", { class: "other-decisions" }, others.map((one) => h("li", null, h("button", { type: "button", class: "link", text: several(seen, one) ? agentName(one) : nameOf(one.player), on: { click: () => { local.whose = seen.indexOf(one); draw(); } } }), ` plays ${one.label}`)))));
    made.thoughts.replaceChildren(part.node);
  }

  /** A critic's value is of discounted rewards: of long games it is far from what they return. */
  function criticSays(value) {
    if (replay.discount !== null && replay.discount !== undefined && replay.discount < 1) return `Its critic’s value is ${signed(value)}: the return from here, discounted by ${number(replay.discount)} at each decision.`;
    return `Its critic expects a return of ${signed(value)} from here.`;
  }

  function drawEnd(frame) {
    const found = frame.over ? replay.statistics : null;
    made.statistics.hidden = !found;
    if (!found) return;
    const many = Array.isArray(found.values[0]);
    made.statistics.lastElementChild.replaceChildren(...found.names.map((name, k) => h("div", null, h("dt", { text: name }),
      h("dd", { text: many ? found.values.map((row) => number(row[k])).join(" · ") : number(found.values[k]) }))));
  }

  function close() {
    stop();
    clearTimeout(local.naming);
    chart.close();
    document.removeEventListener("keydown", onkey);
    board.destroy();
  }
  return { close };
}

const several = (seen, decision) => seen.filter((one) => one.player === decision.player).length > 1;
const agentName = (decision) => decision.name || `agent ${decision.agent}`;
const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

const FEW_LABELS = 3;

/** Moves by player, those of a team's agents counted: [[player, "left × 3, pass, and 4 more"]]. */
export function madeBy(moves) {
  const players = new Map();
  for (const { player, label } of moves) {
    const labels = players.get(player) ?? new Map();
    players.set(player, labels.set(label, (labels.get(label) ?? 0) + 1));
  }
  return [...players].map(([player, labels]) => {
    const common = [...labels].sort(([, one], [, other]) => other - one);
    const shown = common.slice(0, FEW_LABELS).map(([label, many]) => (many > 1 ? `${label} × ${many}` : label));
    const rest = common.slice(FEW_LABELS).reduce((sum, [, many]) => sum + many, 0);
    return [player, [...shown, ...(rest ? [`and ${rest} more`] : [])].join(", ")];
  });
}

function layOut(root, { run, toggle, step, to }) {
  const made = {};
  const control = (name, label, act) => h("button", { type: "button", class: "more", title: label, "aria-label": label, on: { click: act } }, icon(name));
  made.heading = h(run && !run.startsWith("zoo-") ? "h2" : "h1");
  made.told = h("p", { class: "hint" });
  made.links = h("div", { class: "replay-links" });
  made.status = h("p", { class: "turn-line", "aria-live": "polite" });
  made.board = h("div", { class: "board-place" });
  made.start = control("first", "To the start (Home)", () => { step(0); to(0); });
  made.back = control("back", "Back (←)", () => step(-1));
  made.playing = h("span", { text: "Play" });
  made.play = h("button", { type: "button", class: "more main", title: "Play or pause (space)", on: { click: toggle } }, icon("play"), made.playing);
  made.forth = control("forth", "Forth (→)", () => step(1));
  made.end = control("last", "To the end (End)", () => to(Infinity));
  made.where = h("span", { class: "soft where" });
  made.slider = h("input", { type: "range", min: 0, value: 0, class: "slider", "aria-label": "Move" });
  made.speed = h("select", { class: "field", "aria-label": "Speed" }, SPEEDS.map((speed) => h("option", { value: speed, text: `${speed}×`, selected: speed === 1 })));
  made.viewer = h("select", { class: "field" });
  made.viewing = h("label", { class: "viewing" }, h("span", { text: "Show" }), made.viewer);
  made.onBoard = h("input", { type: "checkbox", checked: true });
  made.of = h("span", { text: "of" });
  made.whose = h("select", { class: "field", "aria-label": "Whose probabilities" });
  made.seats = h("div", { class: "seats-list" });
  made.thoughts = h("div");
  made.curves = h("div");
  made.moves = h("ol", { class: "move-list steps", "aria-label": "Moves" });
  made.statistics = h("section", { class: "card", hidden: true }, h("h2", { text: "Statistics" }), h("dl"));
  root.append(
    h("header", { class: "replay-head" }, h("div", null, made.heading, made.told), made.links),
    h("div", { class: "play-area" },
      h("div", { class: "replayed" }, h("div", { class: "card stage" }, made.status, made.board,
        h("div", { class: "transport" }, made.slider, h("div", { class: "buttons" }, made.start, made.back, made.play, made.forth, made.end, made.where, made.speed)),
        h("div", { class: "options-line" }, made.viewing, h("span", { class: "viewing" }, h("label", { class: "tick small" }, made.onBoard, h("span", { text: "Probabilities on the board" })), made.of, made.whose))), made.curves),
      h("div", { class: "aside" }, h("section", { class: "card", "aria-label": "Seats" }, made.seats), made.thoughts,
        h("section", { class: "card", "aria-label": "Moves" }, h("h2", { text: "Moves" }), made.moves), made.statistics)));
  return made;
}
