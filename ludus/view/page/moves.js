// What moves are called. Games name them for programs ("x3", "[P0]Bid: 2"); here they get words that are read, heard and listed.

const NAMES = {
  connect_four: [[/^[xo](\d+)$/, (column) => `column ${Number(column) + 1}`]],
  tic_tac_toe: [[/^[xo]\((\d+),(\d+)\)$/, (row, column) => `row ${Number(row) + 1} column ${Number(column) + 1}`]],
  phantom_ttt: [[/^[xo]\((\d+),(\d+)\)$/, (row, column) => `row ${Number(row) + 1} column ${Number(column) + 1}`]],
  go: [[/^[BW] (\w+)$/, (point) => point.toLowerCase()]],
  goofspiel: [[/^\[P\d+\]Bid: (\d+)$/, (card) => `bid ${card}`]],
  universal_poker: [[/^player=\d+ move=(\w+)$/, (move) => move.replace(/(?!^)([A-Z])/g, " $1").toLowerCase()]],
};

/** What a move is called in a game such as "openspiel/connect_four(rows=6)". */
export function moveName(game, label) {
  for (const [pattern, name] of NAMES[game.replace(/^[^/]*\//, "").replace(/\(.*/, "")] ?? []) {
    const found = pattern.exec(label);
    if (found) return name(...found.slice(1));
  }
  return label;
}

/** A frame whose moves are called so. */
export function withNames(game, frame) {
  const named = (one) => ({ ...one, label: moveName(game, one.label) });
  return { ...frame, last: frame.last.map(named), decisions: frame.decisions.map((one) => ({ ...named(one), legal: one.legal.map(named) })) };
}

const RANKS = "23456789TJQK";
const DEALS = /^(?:Deal|Chance outcome):\s*(\d+)$/;

/** What chance does in a tree of a game of cards, as the boards name the cards. game: its short name; players: how many play. */
export function dealName(game, players, label) {
  const found = DEALS.exec(label);
  if (!found) return label;
  const card = Number(found[1]);
  const ranks = RANKS.slice(-(players + 1));
  if (game === "kuhn_poker" && ranks[card]) return `deals ${ranks[card]}`;
  if (game === "leduc_poker" && ranks[card >> 1]) return `deals ${ranks[card >> 1]}${"♠♥"[card % 2]}`;
  return label;
}
