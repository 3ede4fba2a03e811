// A table: one game with people in it, from the seat of whoever holds its token. Two people at one screen hold two tokens.
//
//   one seat here:     its stream of views ──► the board ──► a move, posted ──► the next view
//   several seats:     a stream of what everybody may see ──► whose turn it is ──► that seat's view, asked for once the person is there ──► …

import { announce, clear, failure, h, icon, sentence, write } from "./dom.js";
import { atBoard, placeOf, showBoard } from "./boards.js";
import { number } from "./charts.js";
import { title } from "./grid.js";
import { called } from "./members.js";
import { ending, isEnd, scores, signed } from "./outcomes.js";
import { stoneIcon } from "./pieces.js";
import { hintPanel } from "./thoughts.js";

const AGAIN = 2000; // milliseconds until a lost stream is opened anew
const RATES = [5, 10, 15, 30]; // moves a second of a game in real time

const listed = new WeakMap(); // list -> the place of its first move in the game, and its moves as texts
const past = new Map(); // table -> results of the tables before it, whose seats were swapped

/** It hears of its table by a stream of its own, and of nothing else: a browser has few connections to one server. */
export const alone = true;

/** See app.js. */
export async function show(root, { source, params, query, go }) {
  const tokens = (query.get("seat") ?? "").split(",");
  const state = worded(await source.get(`tables/${params.table}`, { seat: tokens.join(",") }));
  const players = state.here ?? state.you;
  const seats = tokens.map((token, k) => ({ token, player: players[k] ?? null }));
  const page = tablePage(root, { source, table: params.table, seats, state, go });
  return { close: page.close };
}

/** A table whose players are called what people call them; those of one name are told apart by their seats. */
function worded(state) {
  const told = (player) => (player.person ? player.name : called(player.name));
  const many = (name) => state.players.filter((player) => told(player) === name).length > 1;
  const players = state.players.map((player) => ({ ...player, told: many(told(player)) ? `${told(player)} (player ${player.player})` : told(player) }));
  return { ...state, players };
}

function tablePage(root, { source, table, seats, state: first, go }) {
  const parts = layOut(root);
  const before = past.get(table) ?? [];
  const board = showBoard(parts.board, { choose });
  const several = seats.length > 1;
  const screen = { token: seats.map((seat) => seat.token).join(","), player: null }; // what everybody at the table may see
  const local = { seat: several ? screen : seats[0], open: first, next: null, ready: null, asked: 0, busy: false, made: [], within: false, hold: false, rate: 15, onBoard: true, told: "", stream: null, lost: false, timer: null, ended: false };
  for (const seat of [screen, ...seats]) Object.assign(seat, { state: first, heard: { round: first.round, number: first.frame.number - 1 } });
  const again = h("button", { type: "button", class: "more main", on: { click: restart } }, icon("again"), "Play again");
  const swap = h("button", { type: "button", class: "more", text: "Swap seats", on: { click: swapSeats } });
  const review = h("a", { class: "more", text: "Step through it" });
  parts.again.append(again, swap, review);
  parts.leave.addEventListener("click", leave);
  listen();
  document.addEventListener("visibilitychange", looked);
  if (several) look();
  draw();
  board.focus();

  // ------------------------------------------------------------------------------------------------- what the server says

  // A page that nobody looks at gives its stream back.
  function listen() {
    hush();
    if (local.ended || document.hidden) return;
    const stream = new EventSource(`api/tables/${encodeURIComponent(table)}/live?seat=${encodeURIComponent(screen.token)}`);
    local.stream = stream;
    stream.addEventListener("gone", () => gone(new Error("this table was closed. Lay another one.")));
    stream.addEventListener("frame", (event) => hear(JSON.parse(event.data)));
    stream.addEventListener("open", async () => {
      if (!local.lost) return;
      local.lost = false;
      write(parts.said, "");
      await refresh();
    });
    stream.addEventListener("error", () => {
      local.lost = true;
      write(parts.said, "The table does not answer. Trying again …");
      if (stream.readyState === EventSource.CLOSED) later(); // else it tries by itself
    });
  }

  function hush() {
    local.stream?.close();
    clearTimeout(local.timer);
  }

  async function looked() {
    hush();
    if (!document.hidden) await anew();
  }

  async function anew() {
    if (await refresh()) listen();
  }

  function later() {
    clearTimeout(local.timer);
    if (!local.ended) local.timer = setTimeout(anew, AGAIN);
  }

  /** Asks for what the stream would bring. */
  async function refresh() {
    try {
      await hear(await source.get(`tables/${table}`, { seat: screen.token }));
      return true;
    } catch (error) {
      if (error.status === 404) gone(error);
      else later();
      return false;
    }
  }

  /** Of one seat here its view, of several what everybody may see. */
  async function hear(news) {
    if (!several) return take(seats[0], news);
    const state = worded(news);
    if (local.ended || older(state, local.open)) return;
    local.open = state;
    await look();
  }

  /** Looks from the seat here that is to move, once its person is there; else from the one that was looked from. */
  async function look() {
    try {
      await lookFrom(++local.asked);
    } catch (error) {
      if (error.status === 404) gone(error);
      else later();
    }
  }

  async function lookFrom(mine) {
    const seat = due(local.open);
    local.next = seat && hides(local.open) && local.ready !== seat ? seat : null;
    if (local.next) return draw();
    const from = seat ?? local.seat;
    const news = from === screen ? local.open : await source.get(`tables/${table}`, { seat: from.token });
    if (mine === local.asked) take(from, news);
  }

  /** Whoever has the device now says who they are. */
  async function confirm() {
    local.ready = local.next;
    await look();
    if (!local.ended) board.focus();
  }

  function gone(error) {
    if (local.ended) return;
    close();
    clear(root).append(h("h1", { class: "unseen", text: "The table is gone" }), failure(error),
      h("p", { class: "links" }, h("a", { href: `#/run/${local.open.run}/play`, text: "Lay another table" }), h("a", { href: "#/", text: "All runs" })));
  }

  function take(seat, news) {
    const state = worded(news);
    if (local.ended || (seat === local.seat && older(state, seat.state))) return;
    const fresh = seat !== local.seat || state.frame.number !== seat.state.frame.number || state.round !== seat.state.round;
    seat.state = state;
    local.seat = seat;
    if (fresh) Object.assign(local, { busy: false, made: [] });
    draw();
  }

  // ------------------------------------------------------------------------------------------------- whose turn it is

  /** The seat here that is to move, or null. */
  function due({ over, waiting_for: waiting }) {
    const able = over ? [] : seats.filter((seat) => waiting.includes(seat.player));
    return able.includes(local.seat) ? local.seat : able[0] ?? null;
  }

  function decisions() {
    return local.seat.state.frame.decisions.filter((one) => !local.made.some((made) => made.player === one.player && made.agent === one.agent));
  }

  async function choose(action) {
    const decision = decisions()[0];
    if (!decision || local.busy) return;
    local.within = parts.board.contains(document.activeElement);
    local.made.push({ player: decision.player, agent: decision.agent, action });
    if (decisions().length) return draw();
    const seat = local.seat;
    local.busy = true;
    write(parts.said, "");
    draw();
    try {
      const state = await source.post(`tables/${table}/move`, { seat: seat.token, moves: local.made, number: seat.state.frame.number });
      if (seat === local.seat) take(seat, state);
    } catch (error) {
      Object.assign(local, { busy: false, made: [] });
      write(parts.said, sentence(error.message));
      if (error.status === 409) await refresh();
      draw();
    }
  }

  async function restart() {
    again.disabled = swap.disabled = true;
    write(parts.said, "");
    try {
      await hear(await source.post(`tables/${table}/again`, { seat: screen.token }));
      board.focus();
    } catch (error) {
      write(parts.said, sentence(error.message));
    } finally {
      again.disabled = swap.disabled = false;
    }
  }

  /** Another table where everybody sits one seat further on; the score goes along. */
  async function swapSeats() {
    const { run, players, hints, rated, results } = local.seat.state;
    again.disabled = swap.disabled = true;
    write(parts.said, "");
    hush(); // this table ends when the other one is there
    try {
      const wishes = players.map((_, k) => players[(k + players.length - 1) % players.length]);
      const made = await source.post("tables", { run, seats: wishes.map(({ who, person, name }) => (person ? { who, name } : { who })), hints, rated: Boolean(rated), seed: null, instead: { table, seat: seats[0].token } });
      past.set(made.table, [...before, ...named(results, players)]);
      close();
      go(`#/table/${made.table}?seat=${made.seats.map((seat) => seat.token).filter(Boolean).join(",")}`);
    } catch (error) {
      write(parts.said, sentence(error.message));
      again.disabled = swap.disabled = false;
      await anew();
    }
  }

  async function leave() {
    const { run } = local.open;
    close();
    if (seats[0].player !== null) await source.remove(`tables/${table}?seat=${encodeURIComponent(seats[0].token)}`).catch(() => {}); // gone already: that is what was wanted
    go(`#/run/${run}/play`);
  }

  // ------------------------------------------------------------------------------------------------- what is seen

  function draw() {
    const state = local.seat.state;
    write(parts.title, title(state.game));
    parts.cover.hidden = !local.next;
    parts.play.hidden = Boolean(local.next);
    if (local.next) return drawCover(local.open, local.next.player);
    drawBoard(state);
    drawStatus(state);
    drawSeats(parts.seats, state, several, [...before, ...named(state.results, state.players)]);
    drawMoves(parts.moves, state);
    parts.sofar.hidden = !parts.moves.childElementCount;
    drawLive(state);
    if (local.within && document.activeElement === document.body) follow(state);
  }

  /** Who plays by keys stays where moves are made, though the buttons there come and go. */
  function follow(state) {
    if (state.over) again.focus();
    else if (decisions().length && !local.busy) board.focus();
  }

  function drawCover(state, player) {
    const name = capital(nameOf(state, player));
    const button = h("button", { type: "button", class: "more main", on: { click: confirm } }, icon("person"), `I am ${name}`);
    parts.cover.replaceChildren(h("h2", { text: `Pass the device to ${name}` }), h("p", { class: "soft", text: "What they hold is asked for and shown after this button is pressed." }), button);
    button.focus();
    tell(`Pass the device to ${name}.`);
  }

  function drawBoard(state) {
    const { frame } = state;
    const decision = local.busy ? null : decisions()[0] ?? null;
    const hints = state.hints !== null && decision?.probs;
    board.set(frame.board, {
      legal: decision?.legal ?? [], can: Boolean(decision) && !state.over,
      ...atBoard(state.board_seats, { player: decision?.player ?? state.you[0] ?? null, decision, names: state.players.map((player) => player.told), turn: state.over ? [] : frame.to_move, decisions: frame.decisions }),
      weights: hints && local.onBoard ? new Map(decision.legal.map((move, k) => [move.action, decision.probs[k]])) : null,
      chosen: null, over: Boolean(state.over), box: decision?.box ?? null, keys: state.keys ?? null, hold: local.hold && !state.over, rate: local.rate,
    });
    parts.thoughts.hidden = !(state.hints !== null && decision && (decision.probs || decision.hint));
    if (!parts.thoughts.hidden) hintPanel(parts.thoughts, decision, { onBoard: local.onBoard, toggle: (on) => { local.onBoard = on; draw(); } });
  }

  function drawStatus(state) {
    const [text, kind] = status(state);
    write(parts.status, text);
    parts.status.className = `turn-line ${kind}`;
    parts.again.hidden = !state.over;
    again.hidden = seats[0].player === null;
    swap.hidden = again.hidden || state.players.length < 2 || state.players.filter((player) => player.person).length !== seats.length;
    review.hidden = !state.replay;
    if (state.replay) review.href = `#/run/${state.run}/replay/${encodeURIComponent(state.replay)}`;
    write(parts.returns, told(state));
    const others = unheard(state, local.seat.heard).map((move) => `${capital(nameOf(state, move.player))} played ${move.label}.`);
    local.seat.heard = { round: state.round, number: state.frame.number };
    if (state.frame.board.kind === "frame" && !state.over) return; // what moves all the time is seen, not read out
    tell([...others, `${text}.`].join(" "), `${state.you} ${state.round} ${state.frame.number} ${state.over}`);
  }

  function status(state) {
    if (state.over) return outcome(state, several);
    if (local.hold) return ["In real time", "mine"];
    const todo = decisions();
    if (local.busy) return ["Your move is on its way", "waits"];
    if (todo.length) {
      const name = several ? `${capital(nameOf(state, todo[0].player))}, it is your turn` : "Your turn";
      return [state.frame.decisions.length > 1 ? `${name}: choose for ${todo[0].name || `agent ${todo[0].agent + 1}`} (${local.made.length + 1} of ${state.frame.decisions.length})` : name, "mine"];
    }
    const thinking = state.frame.to_move.filter((player) => !state.you.includes(player));
    return [thinking.length ? `${capital(thinking.map((player) => nameOf(state, player)).join(" and "))} ${thinking.length > 1 ? "are" : "is"} thinking` : "The game goes on", "waits"];
  }

  /** Says something to a screen reader once. */
  function tell(text, key = text) {
    if (key === local.told) return;
    local.told = key;
    announce(text);
  }

  function drawLive(state) {
    const real = state.frame.board.kind === "frame" && Object.keys(state.keys ?? {}).length > 0;
    parts.live.hidden = !real;
    if (!real || parts.live.childElementCount) return;
    const rate = h("select", { class: "field", "aria-label": "Moves a second", on: { change: () => { local.rate = Number(rate.value); draw(); } } }, RATES.map((many) => h("option", { value: many, text: `${many} moves/s` })));
    rate.value = local.rate;
    const button = h("button", { type: "button", class: "more", "aria-pressed": "false", on: { click: () => {
      local.hold = !local.hold;
      button.setAttribute("aria-pressed", String(local.hold));
      draw();
      board.focus();
    } } }, icon("play"), "Real time");
    parts.live.append(button, rate, h("span", { class: "soft", text: "Held keys go on; the game does not wait." }));
  }

  function close() {
    local.ended = true;
    document.removeEventListener("visibilitychange", looked);
    hush();
    board.destroy();
  }
  return { close };
}

function layOut(root) {
  const made = Object.fromEntries(["board", "cover", "seats", "again", "thoughts", "live"].map((name) => [name, h("div", { class: name === "board" ? "board-place" : name })]));
  made.title = h("h1");
  made.status = h("p", { class: "turn-line" });
  made.returns = h("p", { class: "soft returns" });
  made.said = h("p", { class: "said", role: "alert" });
  made.moves = h("ol", { class: "move-list", tabindex: 0, "aria-label": "Moves so far" });
  made.sofar = h("section", { class: "card", "aria-label": "Moves" }, h("h2", { text: "Moves" }), made.moves);
  made.leave = h("button", { type: "button", class: "more", text: "Leave the table" });
  made.play = h("div", { class: "play-area" },
    h("div", { class: "card stage" }, h("div", { class: "status-bar" }, h("div", null, made.status, made.returns), made.again), made.said, made.board, made.live),
    h("div", { class: "aside" }, h("section", { class: "card", "aria-label": "Seats" }, made.seats), made.thoughts,
      made.sofar));
  made.cover.className = "card cover";
  root.append(h("header", { class: "table-head" }, made.title, made.leave), made.cover, made.play);
  return made;
}

/** Whether one seat may see what another may not: then two people at one screen take turns at looking. */
function hides({ game, frame: { board } }) {
  if (board.kind === "grid") return /phantom|dark/.test(game) || board.cells.some((row) => row.includes("?"));
  return board.kind !== "frame";
}

/** What stands under the status: the returns, why a game was stopped, or what the game says of itself. */
function told(state) {
  if (!state.over) return state.frame.text ?? "";
  const returns = state.players.map((player) => `${player.told} ${signed(state.frame.returns[player.player])}`).join(" · ");
  return [isEnd(state.over) ? returns : sentence(state.over), sentence(state.note ?? "")].filter(Boolean).join("\n");
}

/** Whether a state was sent before another: games first, then positions, then how the game ended. */
function older(state, than) {
  if (state.round !== than.round) return state.round < than.round;
  return state.frame.number < than.frame.number || state.results.length < than.results.length || Boolean(than.over && !state.over);
}

function nameOf(state, player) {
  const found = state.players.find((one) => one.player === player);
  return found?.told ?? `player ${player}`;
}

const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

function outcome(state, several) {
  const { returns, over } = state.frame;
  if (!isEnd(over)) return ["The game was stopped", "drawn"];
  if (state.players.length > 1 && !state.zero_sum) return ["The game is over", "drawn"]; // what each gets is not the others' loss
  const mine = !several && state.you.length === 1 ? ending(returns, state.you[0]) : "";
  if (mine) return [{ won: "You won", lost: "You lost", drawn: "A draw" }[mine], mine];
  const best = Math.max(...returns);
  const winners = state.players.filter((player) => returns[player.player] === best);
  if (state.players.length > 1 && winners.length === 1) return [`${capital(winners[0].told)} won`, "won"];
  return [state.players.length > 1 ? "A draw" : `The game is over with ${signed(returns[0])}`, "drawn"];
}

function drawSeats(node, state, several, results) {
  const score = scores(results);
  node.replaceChildren(...state.players.map((player) => {
    const turn = !state.over && state.frame.to_move.includes(player.player);
    const shown = stoneIcon(state.frame.board, placeOf(state.board_seats, player.player)) ?? h("span", { class: `spot p${player.player % 8}`, "aria-hidden": "true" });
    const key = calledIn(player, 0, state.players);
    const won = number(score.get(key) ?? 0);
    const earned = signed(results.reduce((sum, { returns, seats }) => sum + returns[seats.indexOf(key)], 0));
    const [text, label] = state.zero_sum ? [won, `${won} won`] : [earned, `${earned} in all`];
    return h("div", { class: `sitter${turn ? " turn" : ""}` }, shown,
      h("div", { class: "names" }, h("strong", { text: capital(player.told) }), h("span", { class: "soft", text: kindOf(player, state, several) })),
      results.length && state.players.length > 1 ? h("b", { class: "score", "aria-label": label, text }) : null);
  }), results.length ? h("p", { class: "soft tally", text: `${results.length} ${results.length === 1 ? "game" : "games"} so far` }) : "");
}

function kindOf(player, state, several) {
  if (player.person && several) return "at this screen";
  if (state.you.includes(player.player)) return player.name === "You" ? "at this screen" : "you";
  if (player.person) return "a person";
  return player.who === player.name ? "a policy" : called(player.who);
}

/** Whom a game counts for: a mixture's policy is another one in each game, so what was asked for counts. */
function calledIn(player, _, players) {
  const key = (one) => (one.person ? one.name : one.who);
  return players.filter((one) => key(one) === key(player)).length > 1 ? `${key(player)} ${player.player}` : key(player);
}

const named = (results, players) => results.map(({ returns }) => ({ returns, seats: players.map(calledIn) }));

/**
 * The others' moves since the frame that was read out last: frames may be passed over. What was hidden until the game was over is shown by its
 * last frame, of which the last moves are read.
 */
export function unheard({ round, frame, moves, you }, heard) {
  const since = heard.round === round ? heard.number : 0;
  const between = moves.filter((move) => move.number > since && move.number < frame.number);
  return [...between, ...(frame.number > since ? frame.last : [])].filter((move) => !you.includes(move.player));
}

function drawMoves(node, state) {
  const texts = state.moves.map((move) => JSON.stringify([move.player, nameOf(state, move.player), move.label]));
  const before = listed.get(node) ?? { first: 0, texts: [] };
  const gone = state.earlier - before.first; // that the list has no room for any more
  const kept = before.texts.slice(Math.max(0, gone));
  const down = node.scrollTop + node.clientHeight >= node.scrollHeight - 8;
  if (gone >= 0 && kept.length <= texts.length && kept.every((text, k) => text === texts[k])) [...node.children].slice(0, gone).forEach((item) => item.remove());
  else clear(node); // another game, or the end of one that hid its moves
  node.start = 1 + state.earlier;
  for (const move of state.moves.slice(node.childElementCount)) {
    node.append(h("li", null, h("span", { class: `spot small p${move.player % 8}`, "aria-hidden": "true" }), h("span", { class: "soft", text: nameOf(state, move.player) }), ` ${move.label}`));
  }
  listed.set(node, { first: state.earlier, texts });
  if (down) node.scrollTop = node.scrollHeight;
}
