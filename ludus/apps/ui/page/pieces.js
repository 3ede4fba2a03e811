// Shapes that boards are drawn from: SVG nodes, chess pieces, stones, dice.

import { svg } from "./dom.js";

// Each about 40 units high around (0, 0): the outline, and lines drawn on it.
const CHESS = {
  p: ["M-5,-6 A6.6,6.6 0 1 1 5,-6 C8,-5 8,-2 5,-1 C6,6 9,9 11,13 V17 H-11 V13 C-9,9 -6,6 -5,-1 C-8,-2 -8,-5 -5,-6 Z"],
  r: [
    "M-12,-17 H-7 V-13 H-3 V-17 H3 V-13 H7 V-17 H12 V-9 L8,-5 L9,9 L13,13 V17 H-13 V13 L-9,9 L-8,-5 L-12,-9 Z",
    "M-8,-5 H8 M-9,9 H9",
  ],
  n: [
    "M-10,17 C-10,8 -2,4 -3,-2 C-6,1 -9,4 -12,5 L-16,2 C-15,-3 -11,-8 -9,-12 L-9,-18 L-4,-15 C-2,-16 0,-16 2,-16 C11,-14 15,-4 14,17 Z",
    "M-6.5,-9.5 L-5.5,-8.5 M3,-11 C8,-7 9,0 9,8",
  ],
  b: [
    "M0,-20 A2.6,2.6 0 0 1 2,-15 C9,-10 10,-4 6,2 L7,6 H4 L7,12 L14,14 V17 H-14 V14 L-7,12 L-4,6 H-7 L-6,2 C-10,-4 -9,-10 -2,-15 A2.6,2.6 0 0 1 0,-20 Z",
    "M0,-9 V-1 M-4,-5 H4 M-6,2 H6",
  ],
  q: [
    "M-17,-11 L-9,1 L-9,-16 L-3,0 L0,-19 L3,0 L9,-16 L9,1 L17,-11 L13,9 V13 L14,17 H-14 L-13,13 V9 Z",
    "M-13,9 C-6,6 6,6 13,9 M-13,13 C-6,10 6,10 13,13",
  ],
  k: [
    "M-1.6,-21 H1.6 V-18.6 H4.4 V-15.4 H1.6 V-12 C4,-10 4,-7 3,-4 C8,-11 17,-9 17,-1 C17,4 13,6 12,9 V17 H-12 V9 C-13,6 -17,4 -17,-1 C-17,-9 -8,-11 -3,-4 C-4,-7 -4,-10 -1.6,-12 V-15.4 H-4.4 V-18.6 H-1.6 Z",
    "M-12,9 C-6,6 6,6 12,9 M0,-4 V7",
  ],
};
const CHESS_NAMES = { p: "pawn", r: "rook", n: "knight", b: "bishop", q: "queen", k: "king" };

/** Where lines of a winner are worth showing: how many in a row win. */
export const IN_A_ROW = { tic_tac_toe: 3, phantom_ttt: 3, connect_four: 4 };

const LINES_GAMES = new Set(["tic_tac_toe", "phantom_ttt"]);
const BLACK_AND_WHITE = new Set(["go", "othello"]);
const PAWN_GAMES = new Set(["breakthrough"]);
const isChess = (symbol) => /^[a-z]$/i.test(symbol);

/** What stands on a cell, in a box of 100 units around (0, 0). symbol: a player's number or a chess letter. */
export function piece(game, symbol) {
  if (symbol === "?") return svg("text", { class: "unknown", y: 13, text: "?" });
  if (isChess(symbol)) return chess(symbol.toLowerCase(), symbol === symbol.toLowerCase() ? "black" : "white");
  const colour = `stone p${symbol}`;
  if (PAWN_GAMES.has(game)) return svg("g", { class: `man p${symbol}`, transform: "scale(2)" }, svg("path", { d: CHESS.p[0] }));
  if (LINES_GAMES.has(game)) {
    const shape = symbol === "0" ? { d: "M-26,-26 L26,26 M26,-26 L-26,26" } : { d: "M0,-29 A29,29 0 1 1 -0.1,-29 Z" };
    return svg("path", { class: `mark p${symbol}`, ...shape });
  }
  const plain = BLACK_AND_WHITE.has(game);
  const radius = game === "go" ? 46 : game.endsWith("hex") ? 38 : 41;
  return svg("g", { class: plain ? `${colour} plain` : colour }, svg("circle", { r: radius }), plain ? null : svg("circle", { class: "rim", r: radius * 0.72 }));
}

function chess(kind, side) {
  const [outline, lines] = CHESS[kind] ?? CHESS.p;
  const tips = kind === "q" ? [[-17, -13], [-9, -18], [0, -21], [9, -18], [17, -13]] : [];
  return svg("g", { class: `chess ${side}`, transform: "scale(2)" },
    svg("path", { d: outline }),
    ...tips.map(([cx, cy]) => svg("circle", { cx, cy, r: 2.4 })),
    lines ? svg("path", { class: "lines", d: lines }) : null);
}

/** What a piece is called. mine: the player who looks, or null. */
export function pieceName(game, symbol, mine) {
  if (symbol === "") return "empty";
  if (symbol === "?") return "unknown";
  if (isChess(symbol)) return `${symbol === symbol.toLowerCase() ? "black" : "white"} ${CHESS_NAMES[symbol.toLowerCase()] ?? "piece"}`;
  if (LINES_GAMES.has(game)) return symbol === "0" ? "cross" : "nought";
  if (BLACK_AND_WHITE.has(game)) return symbol === "0" ? "black stone" : "white stone";
  if (mine === null || mine === undefined) return `piece of player ${symbol}`;
  return String(mine) === symbol ? "yours" : "theirs";
}

/** A small picture of what a player's pieces look like on a board, or null where there is no such thing. */
export function stoneIcon(board, player) {
  if (board?.kind !== "grid") return null;
  const symbol = board.game === "chess" ? (player === 1 ? "K" : "k") : String(player);
  return svg("svg", { class: "stone-icon", viewBox: "-52 -52 104 104", "aria-hidden": "true" }, piece(board.game, symbol));
}

const PIPS = { 1: ["cc"], 2: ["tl", "br"], 3: ["tl", "cc", "br"], 4: ["tl", "tr", "bl", "br"], 5: ["tl", "tr", "cc", "bl", "br"], 6: ["tl", "tr", "cl", "cr", "bl", "br"] };
const PLACE = { t: -24, c: 0, b: 24, l: -24, r: 24 };

/** One die. face: 1 to 6, or null for one that lies hidden. */
export function die(face) {
  const pips = PIPS[face] ?? [];
  return svg("svg", { class: face ? "die" : "die hidden", viewBox: "-50 -50 100 100", role: "img", "aria-label": face ? `a ${face}` : "a hidden die" },
    svg("rect", { x: -44, y: -44, width: 88, height: 88, rx: 18 }),
    ...pips.map(([y, x]) => svg("circle", { cx: PLACE[x], cy: PLACE[y], r: 9.5 })),
    face ? null : svg("text", { y: 15, text: "?" }));
}
