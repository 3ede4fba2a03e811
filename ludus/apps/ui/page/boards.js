// Every kind of board by one face. A board shows what one viewer may see of a position, and where a move is due it takes it.

import { clear, h } from "./dom.js";
import { cards } from "./cards.js";
import { number } from "./charts.js";
import { diverging } from "./colours.js";
import { grid } from "./grid.js";

const KINDS = { grid, cards, matrix, frame, text };
const IDLE = /^(nothing|no-?op|stay|still|idle|wait)$/i; // what a game calls doing nothing
const PALE = 0.5; // of a payoff's colour, so that the numbers on it can be read
const HIGH = 500; // pixels that a picture has at most
const MANY = 14; // legal actions beyond which they are a list with a filter

/**
 * Draws boards into a node, one after the other.
 *
 * set(board, view): the board, and how it is looked at:
 *   legal    [{action, label, cell, from}] of the decision that is shown ([] none)
 *   can      whether the viewer may choose now
 *   mine     the player who looks, or null: everybody
 *   watching whether the viewer only looks through that player's eyes (a replay)
 *   names    [players] who plays them
 *   turn     players who are to move
 *   weights  Map action -> probability to show (hints; what a policy thought), or null
 *   chosen   the action that was chosen at this position (a replay), or null
 *   over     whether the game has ended
 *   box      {low, high, names, whole} where an action is numbers, or null
 *   keys     {KeyboardEvent.key: action} or null;  hold: whether held keys play (see `frame`)
 *   animate  false: pieces appear where they are
 * choose(action) is called with the viewer's choice.
 */
export function showBoard(node, { choose }) {
  const place = h("div", { class: "board" });
  const rest = h("div", { class: "rest" });
  node.replaceChildren(place, rest);
  const list = actionList(rest, { choose });
  let kind = null;
  let drawn = null;

  return {
    set(board, view) {
      if (board.kind !== kind) {
        drawn?.destroy();
        kind = board.kind;
        place.className = `board ${kind}`;
        drawn = (KINDS[kind] ?? text)(place, { choose });
      }
      drawn.set(board, view);
      list.set(left(board, view), view);
    },
    focus() {
      drawn?.focus();
      if (!place.contains(document.activeElement)) list.focus();
    },
    destroy() { drawn?.destroy(); node.replaceChildren(); },
  };
}

/**
 * Who looks, who plays and who is to move, by the numbers that the board's own players have.
 * seats: [{player, agent, name}] who plays them, where that differs; [] else. player: who looks (null: everybody). decision: of theirs, or null.
 * decisions: those that are known.
 */
export function atBoard(seats, { player, decision, names, turn, decisions }) {
  if (!seats?.length) return { mine: player, names, turn };
  const mine = seats.findIndex((seat) => seat.player === player && (!decision || decision.agent === seat.agent));
  const moves = ({ player: one, agent }) => {
    const known = decisions.filter((due) => due.player === one);
    return turn.includes(one) && (!known.length || known.some((due) => due.agent === agent));
  };
  const several = (player) => seats.filter((seat) => seat.player === player).length > 1;
  const told = ({ player: one, agent, name }) => (one < 0 ? name : several(one) ? `${names[one]} ${agent + 1}` : names[one]);
  return { mine: mine < 0 ? null : mine, names: seats.map(told), turn: [...seats.keys()].filter((k) => moves(seats[k])) };
}

/** The board's own player that a player plays, the first of several. */
export const placeOf = (seats, player) => (seats?.length ? seats.findIndex((seat) => seat.player === player) : player);

// The moves that the board itself does not offer.
function left(board, view) {
  if (board.kind === "cards" || board.kind === "matrix") return [];
  return board.kind === "grid" ? view.legal.filter((move) => !move.cell) : view.legal;
}

/** Legal actions as buttons; many of them as a list with a filter; actions that are numbers as fields. */
function actionList(node, { choose }) {
  let shown = "";
  let wanted = "";
  let moves = [];
  let view = null;

  const button = (move) => {
    const weight = view.weights?.get(move.action);
    const share = weight === undefined ? null : `${Math.round(100 * weight)}%`;
    const made = h("button", { type: "button", class: `move${view.chosen === move.action ? " chosen" : ""}`, disabled: !view.can, "aria-label": share ? `${move.label}, ${share}` : null,
      on: { click: () => choose(move.action) } }, h("span", { text: move.label }), share ? h("span", { class: "share", text: share }) : null);
    if (share) made.style.setProperty("--share", weight);
    return made;
  };

  function fill(where) {
    const found = moves.filter((move) => move.label.toLowerCase().includes(wanted));
    where.replaceChildren(...found.slice(0, 200).map(button));
    if (found.length > 200) where.append(h("p", { class: "soft", text: `${found.length - 200} more: narrow the filter.` }));
    if (!found.length) where.append(h("p", { class: "soft", text: "No move is called so." }));
  }

  function filtered() {
    const many = h("div", { class: "moves many" });
    const field = h("input", { type: "search", class: "filter", placeholder: `Find one of ${moves.length} moves`, "aria-label": "Find a move", autocomplete: "off", spellcheck: "false", value: wanted,
      on: { input: () => { wanted = field.value.trim().toLowerCase(); fill(many); }, keydown: (event) => { if (event.key === "Enter") many.querySelector("button:not(:disabled)")?.click(); } } });
    fill(many);
    return [field, many];
  }

  return {
    set(next, now) {
      const key = JSON.stringify([next, now.can, now.chosen, now.box ?? null, [...(now.weights ?? [])]]);
      if (key === shown) return;
      const held = node.contains(document.activeElement);
      const typed = held && document.activeElement.tagName === "INPUT";
      [shown, moves, view] = [key, next, now];
      if (view.box && view.can) node.replaceChildren(numbers(view.box, choose));
      else if (!moves.length) node.replaceChildren();
      else if (moves.length > MANY) node.replaceChildren(...filtered());
      else node.replaceChildren(h("div", { class: "moves", role: "group", "aria-label": "Moves" }, moves.map(button)));
      if (held) node.querySelector(typed ? "input" : "button:not(:disabled)")?.focus();
    },
    focus() { node.querySelector("input, button:not(:disabled)")?.focus(); },
  };
}

// An action of numbers: a slider for each.
function numbers(box, choose) {
  const fields = box.low.map((low, k) => {
    const [least, most] = [low ?? -1, box.high[k] ?? 1];
    const middle = box.whole ? Math.floor((least + most) / 2) : (least + most) / 2;
    const shown = h("output", { text: number(middle) });
    const field = h("input", { type: "range", min: least, max: most, step: box.whole ? 1 : (most - least) / 200 || "any", value: middle, on: { input: () => { shown.textContent = number(Number(field.value)); } } });
    return [field, h("label", { class: "number" }, h("span", { text: box.names?.[k] ?? `Number ${k + 1}` }), field, shown)];
  });
  return h("form", { class: "numbers", on: { submit: (event) => { event.preventDefault(); choose(fields.map(([field]) => Number(field.value))); } } },
    fields.map(([, label]) => label), h("button", { type: "submit", class: "move", text: "Play" }));
}

/** Matrix games: one's actions are rows, whoever one is; the payoffs stand in the cells. */
function matrix(node, { choose }) {
  let drawn = "";
  return {
    set(board, view) {
      const key = JSON.stringify([board, view.legal, view.can, view.mine, [...(view.weights ?? [])]]);
      if (key === drawn) return;
      drawn = key;
      const held = node.contains(document.activeElement);
      clear(node).append(board.actions.length === 2 && board.payoffs ? matrixTable(board, view, choose) : choicesOf(board, view, choose));
      if (held) node.querySelector("button:not(:disabled)")?.focus();
    },
    focus() { node.querySelector("button:not(:disabled)")?.focus(); },
    destroy() { clear(node); },
  };
}

// More than two players, or payoffs that nobody wrote down: everybody's actions, what was chosen, and one's own as buttons.
function choicesOf(board, view, choose) {
  const rows = board.actions.map((labels, player) => {
    const mine = player === view.mine;
    const chosen = board.chosen?.[player];
    const moves = mine && view.legal.length ? view.legal : labels.map((label, action) => ({ label, action }));
    return h("div", { class: "choice-row", role: "group", "aria-label": view.names?.[player] ?? `player ${player}` }, h("span", { class: "soft", text: mine ? "You" : view.names?.[player] ?? `player ${player}` }),
      moves.map((move) => h("button", { type: "button", class: "move", disabled: !mine || !view.can, "aria-pressed": labels.indexOf(move.label) === chosen ? "true" : null, on: { click: () => choose(move.action) } },
        move.label, mine && view.weights?.has(move.action) ? h("span", { class: "share", text: `${Math.round(100 * view.weights.get(move.action))}%` }) : null)));
  });
  return h("div", { class: "matrix-game" }, rows);
}

function matrixTable(board, view, choose) {
  const me = view.mine ?? 0;
  const they = 1 - me;
  const [mine, theirs] = [board.actions[me], board.actions[they] ?? []];
  const pay = (player, i, j) => board.payoffs?.[player]?.[me === 0 ? i : j]?.[me === 0 ? j : i];
  const chosen = board.chosen ?? [];
  const tint = tints((board.payoffs?.[me] ?? [[]]).flat().filter(Number.isFinite));
  const head = h("tr", null, h("td", { class: "corner" }), theirs.map((label, j) => h("th", { scope: "col", class: chosen[they] === j ? "chosen" : null, text: label })));
  const rows = mine.map((label, i) => {
    const move = view.legal.find((legal) => legal.label === label) ?? view.legal[i];
    const weight = move && view.weights?.get(move.action);
    const button = h("button", { type: "button", class: "move", disabled: !view.can || !move, "aria-pressed": chosen[me] === i ? "true" : null, on: { click: () => choose(move.action) } },
      label, weight === undefined || weight === null ? null : h("span", { class: "share", text: `${Math.round(100 * weight)}%` }));
    if (weight) button.style.setProperty("--share", weight);
    return h("tr", { class: chosen[me] === i ? "chosen" : null }, h("th", { scope: "row" }, button), theirs.map((_, j) => cell(i, j)));
  });
  function cell(i, j) {
    const [own, other] = [pay(me, i, j), pay(they, i, j)];
    const made = h("td", { class: chosen[me] === i && chosen[they] === j ? "pay played" : "pay" }, h("b", { text: number(own) }), h("span", { class: "unseen", text: ", " }), h("span", { class: "theirs", text: number(other) }));
    if (Number.isFinite(own)) made.style.background = diverging(PALE * tint(own));
    return made;
  }
  const [first, second] = [view.names?.[me] ?? `player ${me}`, view.names?.[they] ?? `player ${they}`];
  const spot = (player) => h("span", { class: `spot small p${player}`, "aria-hidden": "true" });
  return h("div", { class: "matrix-game" },
    h("p", { class: "soft" }, `Rows are ${view.mine === null ? first : "yours"}, columns ${second}’s. In a cell: `, spot(me), h("b", { text: view.mine === null ? `what ${first} gets` : "what you get" }), ", then ", spot(they), `what ${second} gets. Red is much for ${view.mine === null ? first : "you"}, blue little.`),
    h("div", { class: "scroll", tabindex: board.actions[they]?.length > 6 ? 0 : null }, h("table", null, h("thead", null, head), h("tbody", null, rows))));
}

/** Colours as in the payoff table: value -> -1 (the least) to 1, around 0 where both signs occur, else around the middle. */
function tints(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const centre = low < 0 && high > 0 ? 0 : (low + high) / 2;
  const reach = Math.max(high - centre, centre - low) || 1;
  return (value) => (value - centre) / reach;
}

/**
 * A picture and keys. A key makes its move when it goes down. With view.hold a game plays in real time: `rate` moves a second, those of the
 * held key, else the one of no key (or the last one where the game has no such move).
 */
function frame(node, { choose }) {
  const canvas = h("canvas", { class: "screen", tabindex: 0, role: "img" });
  const help = h("div", { class: "keys" });
  node.replaceChildren(canvas, help);
  const held = new Set();
  let view = null;
  let shown = "";
  let told = "";
  let turn = 0;
  let last = null;
  let timer = null;

  const action = () => {
    const key = [...held].reverse().find((name) => name in (view.keys ?? {}));
    if (key !== undefined) return view.keys[key];
    return view.keys?.[""] ?? view.legal.find((move) => IDLE.test(move.label))?.action ?? last ?? view.legal[0]?.action;
  };
  const go = (chosen) => {
    if (chosen === undefined || chosen === null || !view.can) return;
    last = chosen;
    choose(chosen);
  };
  const tick = () => {
    timer = view?.hold && document.hasFocus() ? setTimeout(tick, 1000 / (view.rate || 15)) : null;
    if (timer && view.can) go(action());
  };
  const down = (event) => {
    if (event.target !== canvas && event.target !== document.body) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!view?.keys || !(key in view.keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    held.delete(key);
    held.add(key);
    if (!view.hold) go(view.keys[key]);
  };
  const up = (event) => held.delete(event.key.length === 1 ? event.key.toLowerCase() : event.key);
  const none = () => held.clear();
  document.addEventListener("keydown", down);
  document.addEventListener("keyup", up);
  window.addEventListener("blur", none);

  async function paint(board) {
    const mine = ++turn;
    const image = new Image();
    image.src = board.image;
    try { await image.decode(); } catch { if (mine === turn) canvas.setAttribute("aria-label", "The picture could not be shown."); return; }
    if (mine !== turn) return;
    const times = Math.max(1, Math.floor(HIGH / Math.max(image.width, image.height))); // small pictures grow by whole pixels
    if (canvas.width !== image.width) canvas.width = image.width;
    if (canvas.height !== image.height) canvas.height = image.height;
    canvas.style.width = `${Math.min(times, HIGH / image.height) * image.width}px`;
    canvas.classList.toggle("pixels", times > 1);
    canvas.getContext("2d").drawImage(image, 0, 0);
  }

  function legend() {
    const keys = Object.entries(view.keys ?? {}).filter(([key]) => key);
    const key_text = JSON.stringify([keys, view.legal, view.can]);
    if (key_text === told) return;
    told = key_text;
    const name = (wanted) => view.legal.find((move) => move.action === wanted)?.label ?? String(wanted);
    help.replaceChildren(...(view.can || view.mine !== null ? keys.map(([key, value]) => h("span", { class: "key" }, h("kbd", { text: keyName(key) }), name(value))) : []));
  }

  return {
    set(board, now) {
      view = now;
      canvas.setAttribute("aria-label", now.can ? "The game’s picture. Click it, then play with the keys below." : "The game’s picture");
      if (board.image !== shown) {
        shown = board.image;
        paint(board);
      }
      legend();
      if (view.hold && !timer) tick();
    },
    focus() { canvas.focus(); },
    destroy() {
      clearTimeout(timer);
      document.removeEventListener("keydown", down);
      document.removeEventListener("keyup", up);
      window.removeEventListener("blur", none);
      view = null;
      turn++;
      clear(node);
    },
  };
}

function keyName(key) {
  return { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "space" }[key] ?? key;
}

/** What a game writes of itself. */
function text(node) {
  const written = h("pre", { class: "written", tabindex: 0, "aria-label": "The position, as the game writes it" });
  node.replaceChildren(written);
  return {
    set(board) { if (written.textContent !== board.text) written.textContent = board.text ?? ""; },
    focus() {},
    destroy() { clear(node); },
  };
}
