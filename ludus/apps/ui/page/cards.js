// Games with cards or dice in hands: seats around a table, what lies in the middle, and what may be done as buttons.

import { clear, h } from "./dom.js";
import { number } from "./charts.js";
import { die } from "./pieces.js";

const SUITS = { "♠": "spades", "♥": "hearts", "♦": "diamonds", "♣": "clubs" };
const RANKS = { A: "ace", K: "king", Q: "queen", J: "jack", T: "ten" };
const NUMBER = /(\d+)\D*$/;

const bids_with = (move, held) => NUMBER.exec(move.label)?.[1] === held.text;

function spoken(card) {
  if (card.hidden) return "a card face down";
  const rank = RANKS[card.rank] ?? card.rank ?? card.text;
  return card.suit ? `${rank} of ${SUITS[card.suit] ?? card.suit}` : `${rank}`;
}

/** One card or die as a node. action: called when it is played, or null. */
function card(what, { action = null, label = "", dice = false } = {}) {
  if (dice || Number.isInteger(what.die)) return die(what.hidden ? null : what.die);
  const red = what.suit === "♥" || what.suit === "♦";
  const face = what.hidden
    ? [h("span", { class: "back", "aria-hidden": "true" })]
    : [h("span", { class: "rank", text: what.rank ?? what.text }), what.suit ? h("span", { class: "suit", text: what.suit }) : null];
  const attributes = { class: `card-face${what.hidden ? " hidden" : ""}${red ? " red" : ""}${what.used ? " used" : ""}`, "aria-label": label || spoken(what) };
  return action
    ? h("button", { type: "button", ...attributes, class: `${attributes.class} playable`, on: { click: action } }, face)
    : h("span", { role: "img", ...attributes }, face);
}

/** See `showBoard` of boards.js. */
export function cards(node, { choose }) {
  let drawn = "";
  let first = null; // what focus() goes to

  function seat(board, of, view) {
    const mine = view.mine === of.player;
    const name = view.names?.[of.player] ?? of.name;
    const hand = h("div", { class: of.cards.length > 7 ? "hand many" : "hand" }, of.cards.map((held) => held_card(board, held, mine, view)));
    const chips = of.chips && h("span", { class: "chips" }, h("i", { "aria-hidden": "true" }), chipsText(of.chips, view.over));
    const classes = ["seat", mine && "mine", view.turn?.includes(of.player) && "turn"].filter(Boolean).join(" ");
    return h("div", { class: classes, role: "group", "aria-label": mine && !view.watching && name !== "You" ? `${name}, you` : name },
      h("div", { class: "who" }, h("strong", { text: name }), mine && !view.watching && name !== "You" ? h("span", { class: "you", text: "you" }) : null, of.note ? h("span", { class: "note", text: of.note }) : null),
      of.cards.length ? hand : null, chips || null);
  }

  // At the end the pot has been paid: a stack has what was won in it.
  function chipsText({ paid, stack }, over) {
    const text = `${number(paid)} ${over ? "paid" : "in the pot"}`;
    if (stack === null || stack === undefined) return text;
    return over ? `${text}, has ${number(stack)} now` : `${text}, ${number(stack)} left`;
  }

  // In goofspiel a card of one's hand is the bid itself.
  function held_card(board, held, mine, view) {
    const move = mine && board.game === "goofspiel" && view.can ? view.legal.find((legal) => bids_with(legal, held)) : null;
    if (!move) return card(held, { dice: board.game === "liars_dice" });
    const weight = view.weights?.get(move.action);
    const share = weight === undefined ? null : h("span", { class: "share", text: `${Math.round(100 * weight)}%` });
    return h("span", { class: "bidding" }, card(held, { action: () => choose(move.action), label: `bid ${held.text}` }), share);
  }

  function middle(board, over) {
    const table = board.table ?? [];
    const parts = [];
    const prize = board.game === "goofspiel";
    if (table.length) parts.push(h("div", { class: "hand", role: "group", "aria-label": prize ? "The prize" : "On the table" }, prize ? h("span", { class: "prize", text: "The prize" }) : null, table.map((lying) => card(lying))));
    if (board.pot !== null && board.pot !== undefined) parts.push(h("div", { class: "pot" }, h("i", { "aria-hidden": "true" }), `Pot ${number(board.pot)}${over ? ", paid out" : ""}`));
    const bids = board.bids ?? [];
    if (bids.length) parts.push(h("div", { class: "bids", role: "group", "aria-label": "Bids so far" }, bids.map((bid, k) => bid_shown(bid, k === bids.length - 1))));
    return h("div", { class: "middle" }, parts);
  }

  function bid_shown(bid, last) {
    const text = typeof bid === "string" ? bid : bid.text;
    const parts = /^(\d+)-(\d+)$/.exec(text);
    return h("span", { class: last ? "bid last" : "bid" }, parts ? [`${parts[1]} ×`, die(Number(parts[2]))] : text);
  }

  function actions(board, view) {
    if (!view.can && !view.weights) return null;
    const legal = board.game === "goofspiel" && view.can ? view.legal.filter((move) => !board.seats.some((of) => of.player === view.mine && of.cards.some((held) => bids_with(move, held)))) : view.legal;
    if (!legal.length) return null;
    const bids = legal.map((move) => /^(\d+)-(\d+)$/.exec(move.label));
    const plain = legal.filter((_, k) => !bids[k]);
    const rows = new Map();
    legal.forEach((move, k) => { if (bids[k]) rows.set(bids[k][1], [...(rows.get(bids[k][1]) ?? []), [move, bids[k]]]); });
    const row = ([many, moves]) => h("div", { class: "row" }, h("span", { class: "many", text: `${many} ×` }),
      moves.map(([move, found]) => button(move, view, [die(Number(found[2]))], `bid ${many} times ${found[2]}`)));
    return h("div", { class: "bets", role: "group", "aria-label": view.watching ? "What could be done" : "Your move" },
      rows.size ? h("div", { class: "bid-table" }, [...rows].map(row)) : null,
      plain.length ? h("div", { class: "plain" }, plain.map((move) => button(move, view, [move.label], move.label))) : null);
  }

  function button(move, view, content, label) {
    const weight = view.weights?.get(move.action);
    const share = weight === undefined ? null : `${Math.round(100 * weight)}%`;
    const made = h("button", { type: "button", class: view.chosen === move.action ? "move chosen" : "move", disabled: !view.can, "aria-label": share ? `${label}, ${view.watching ? "probability" : "hint"} ${share}` : label, on: { click: () => choose(move.action) } },
      content, share ? h("span", { class: "share", text: share }) : null);
    if (share) made.style.setProperty("--share", weight);
    return made;
  }

  return {
    set(board, view) {
      const key = JSON.stringify([board, view.legal, view.can, view.mine, view.turn, view.chosen, view.over, [...(view.weights ?? [])]]);
      if (key === drawn) return;
      drawn = key;
      const held = node.contains(document.activeElement);
      const mine = board.seats.filter((of) => of.player === view.mine);
      const others = board.seats.filter((of) => of.player !== view.mine);
      const [top, bottom] = mine.length ? [others, mine] : [board.seats.slice(0, -1), board.seats.slice(-1)];
      const history = board.history?.length ? h("p", { class: "so-far" }, h("span", { text: "So far: " }), board.history.map((done) => done.replace(/^@/, "")).join(", ")) : null;
      clear(node).append(h("div", { class: `felt ${board.game}` },
        h("div", { class: "seats" }, top.map((of) => seat(board, of, view))), middle(board, view.over),
        h("div", { class: "seats" }, bottom.map((of) => seat(board, of, view))), history), actions(board, view) ?? "");
      first = node.querySelector("button:not(:disabled)");
      if (held) first?.focus();
    },
    focus() { first?.focus(); },
    destroy() { clear(node); },
  };
}
