// Boards of cells: squares, hexagons, or points where lines cross. One SVG; the whole board can be played by keyboard.

import { h, svg } from "./dom.js";
import { IN_A_ROW, piece, pieceName } from "./pieces.js";

const SIDE = 100 / Math.sqrt(3); // of a hexagon 100 wide
const SHAPES = {
  square: {
    centre: (r, c) => [c * 100 + 50, r * 100 + 50],
    outline: () => "M-50,-50 H50 V50 H-50 Z",
    size: (rows, columns) => [columns * 100, rows * 100],
  },
  points: {
    centre: (r, c) => [c * 100 + 50, r * 100 + 50],
    outline: () => "M-50,-50 H50 V50 H-50 Z",
    size: (rows, columns) => [columns * 100, rows * 100],
  },
  hex: {
    centre: (r, c) => [(c + r / 2) * 100 + 50, r * 1.5 * SIDE + SIDE],
    outline: () => `M0,${-SIDE} L50,${-SIDE / 2} V${SIDE / 2} L0,${SIDE} L-50,${SIDE / 2} V${-SIDE / 2} Z`,
    size: (rows, columns) => [(columns + (rows - 1) / 2) * 100, (rows - 1) * 1.5 * SIDE + 2 * SIDE],
  },
};
const ARROWS = 24; // at most
const LITTLE = 0.02; // a probability below is not drawn
const same = (one, other) => Boolean(one && other) && one[0] === other[0] && one[1] === other[1];
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Players who sit at the other side look from there: their own pieces are near them. */
function turned(board, mine) {
  return mine === 0 && (board.game === "chess" || board.game === "breakthrough");
}

/** See `showBoard` of boards.js: `{set(board, view), focus(), destroy()}`. */
export function grid(node, { choose }) {
  const choices = h("div", { class: "choices" });
  let built = null; // what the SVG was made for
  let cells = []; // [rows][columns] of {node, piece, symbol, mark}
  let root = null;
  let arrows = null; // moves that go from one cell to another, as probable as they are thick
  let board = null;
  let view = null;
  let at = [0, 0]; // the cell that the keyboard is at, as drawn
  let selected = null; // where the piece stands that is going to move

  const flip = () => turned(board, view.mine);
  const seen = ([r, c]) => (flip() ? [board.rows - 1 - r, board.columns - 1 - c] : [r, c]); // and back: it is its own inverse
  const legal = () => (view.can ? view.legal : []);

  function build() {
    const shape = SHAPES[board.shape] ?? SHAPES.square;
    const [width, height] = shape.size(board.rows, board.columns);
    const named = Boolean(board.labels?.rows?.length || board.labels?.columns?.length);
    const margin = board.shape === "hex" ? 44 : named ? 46 : 14;
    const layers = Object.fromEntries(["base", "pieces", "plate", "marks", "arrows", "hits"].map((name) => [name, svg("g", name === "hits" ? { role: "rowgroup" } : { class: name, "aria-hidden": "true" })]));
    cells = Array.from({ length: board.rows }, (_, r) => {
      const row = svg("g", { role: "row", "aria-label": `row ${r + 1}` });
      layers.hits.append(row);
      return Array.from({ length: board.columns }, (_, c) => cell(shape, layers, row, r, c));
    });
    root = svg("svg", {
      class: `grid ${board.shape} ${board.game}${board.drop ? " drop" : ""}`, role: "grid", "aria-label": `${title(board.game)}, ${board.rows} by ${board.columns}`,
      viewBox: `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`,
    });
    layers.base.prepend(...ground(width, height));
    if (board.drop) layers.plate.append(plate(width, height));
    root.append(...Object.values(layers));
    arrows = layers.arrows;
    if (named) root.append(labels(shape, height, margin));
    root.addEventListener("mousedown", (event) => { if (!view.can) event.preventDefault(); }); // only the keyboard reads a board that waits
    root.addEventListener("click", (event) => act(event.target.closest?.(".cell")));
    root.addEventListener("keydown", onkey);
    root.addEventListener("focusin", (event) => {
      const found = place(event.target.closest?.(".cell"));
      if (found) reach(found, false);
    });
    node.replaceChildren(root, choices);
    const ratio = (width + 2 * margin) / (height + 2 * margin);
    const most = Math.min(640, Math.max(400, 84 * Math.max(board.rows, board.columns)));
    root.style.maxWidth = `${Math.round(most * Math.min(1, ratio) * (board.shape === "hex" ? 1.2 : 1))}px`;
  }

  function cell(shape, layers, row, r, c) {
    const [x, y] = shape.centre(r, c);
    const where = { transform: `translate(${x},${y})` };
    const made = { piece: svg("g", where), mark: svg("g", where), symbol: "", tile: null };
    if (board.shape !== "points" && !board.drop) {
      made.tile = svg("path", { class: (r + c) % 2 ? "tile odd" : "tile", d: shape.outline(), ...where });
      layers.base.append(made.tile);
    }
    layers.pieces.append(made.piece);
    layers.marks.append(made.mark);
    made.node = svg("g", { class: "cell", role: "gridcell", tabindex: -1, "data-at": `${r},${c}`, ...where }, svg("path", { class: "area", d: shape.outline() }), board.drop ? svg("circle", { class: "hole", r: 43 }) : null);
    row.append(made.node);
    return made;
  }

  function ground(width, height) {
    if (board.shape === "hex") return edges();
    if (board.shape !== "points") return [svg("rect", { class: "ground", x: -8, y: -8, width: width + 16, height: height + 16, rx: 12 })];
    const lines = [];
    for (let r = 0; r < board.rows; r++) lines.push(`M50,${r * 100 + 50} H${width - 50}`);
    for (let c = 0; c < board.columns; c++) lines.push(`M${c * 100 + 50},50 V${height - 50}`);
    return [
      svg("rect", { class: "ground wood", x: -8, y: -8, width: width + 16, height: height + 16, rx: 10 }),
      svg("path", { class: "lines", d: lines.join(" ") }),
      ...stars().map(([r, c]) => svg("circle", { class: "star", cx: c * 100 + 50, cy: r * 100 + 50, r: 8 })),
    ];
  }

  function stars() {
    if (board.rows !== board.columns || board.rows < 9) return [];
    const [first, middle] = [board.rows < 13 ? 2 : 3, (board.rows - 1) / 2];
    const lines = board.rows % 2 ? [first, middle, board.rows - 1 - first] : [first, board.rows - 1 - first];
    return lines.flatMap((r) => lines.filter((c) => board.rows > 9 || (r === middle) === (c === middle)).map((c) => [r, c]));
  }

  // Whose edges are whose: the first player joins top and bottom, the second left and right.
  function edges() {
    const { centre } = SHAPES.hex;
    const [rows, columns] = [board.rows, board.columns];
    const side = (player, many, of) => svg("path", { class: `edge p${player}`, d: Array.from({ length: many }, (_, k) => of(k)).map(([x, y], k) => `${k ? "L" : "M"}${x},${y}`).join(" ") });
    const corner = (r, c, dx, dy) => { const [x, y] = centre(r, c); return [x + dx, y + dy]; };
    const zigzag = (many, of) => [2 * many + 1, (k) => of(Math.min(k >> 1, many - 1), k === 2 * many ? 2 : k % 2)];
    const top = zigzag(columns, (c, k) => corner(0, c, [-50, 0, 50][k], [-SIDE / 2, -SIDE, -SIDE / 2][k]));
    const bottom = zigzag(columns, (c, k) => corner(rows - 1, c, [-50, 0, 50][k], [SIDE / 2, SIDE, SIDE / 2][k]));
    const left = zigzag(rows, (r, k) => corner(r, 0, [-50, -50, 0][k], [-SIDE / 2, SIDE / 2, SIDE][k]));
    const right = zigzag(rows, (r, k) => corner(r, columns - 1, [0, 50, 50][k], [-SIDE, -SIDE / 2, SIDE / 2][k]));
    return [side(0, ...top), side(0, ...bottom), side(1, ...left), side(1, ...right)];
  }

  function plate(width, height) {
    let path = `M-8,4 Q-8,-8 4,-8 H${width - 4} Q${width + 8},-8 ${width + 8},4 V${height - 4} Q${width + 8},${height + 8} ${width - 4},${height + 8} H4 Q-8,${height + 8} -8,${height - 4} Z`;
    for (let r = 0; r < board.rows; r++) for (let c = 0; c < board.columns; c++) path += ` M${c * 100 + 91},${r * 100 + 50} a41,41 0 1 0 -82,0 a41,41 0 1 0 82,0 Z`;
    return svg("path", { d: path, "fill-rule": "evenodd" });
  }

  function labels(shape, height, margin) {
    const names = svg("g", { class: "labels", "aria-hidden": "true" });
    const [rows, columns] = [board.labels.rows ?? [], board.labels.columns ?? []];
    rows.forEach((_, r) => {
      const [x, y] = shape.centre(r, 0);
      names.append(svg("text", { x: x - 50 - margin * 0.55, y: y + 10, text: rows[seen([r, 0])[0]] }));
    });
    columns.forEach((_, c) => {
      const [x] = shape.centre(board.shape === "hex" ? 0 : board.rows - 1, c);
      names.append(svg("text", { x: board.shape === "hex" ? x - 20 : x, y: board.shape === "hex" ? -margin * 0.35 : height + margin * 0.75, text: columns[seen([0, c])[1]] }));
    });
    return names;
  }

  const place = (found) => found?.dataset.at.split(",").map(Number) ?? null;

  function reach([r, c], focus = true) {
    cells[at[0]]?.[at[1]]?.node.setAttribute("tabindex", -1);
    at = [r, c];
    cells[r][c].node.setAttribute("tabindex", 0);
    if (focus) cells[r][c].node.focus();
  }

  function onkey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const step = STEPS[event.key];
    const within = (value, most) => Math.max(0, Math.min(most - 1, value));
    if (step) reach([within(at[0] + step[0], board.rows), within(at[1] + step[1], board.columns)]);
    else if (event.key === "Home") reach([at[0], 0]);
    else if (event.key === "End") reach([at[0], board.columns - 1]);
    else if (event.key === "Enter" || event.key === " ") act(cells[at[0]][at[1]].node);
    else if (event.key === "Escape" && selected) select(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function moves(where) {
    if (board.drop) return legal().filter((move) => move.cell?.[1] === where[1]);
    return legal().filter((move) => same(move.cell, where) && (!move.from || same(move.from, selected)));
  }

  function act(found) {
    const drawn = place(found);
    if (!drawn || !view.can) return;
    reach(drawn);
    const where = seen(drawn);
    const found_moves = moves(where);
    if (found_moves.length === 1) done(found_moves[0]);
    else if (found_moves.length > 1) ask(found_moves);
    else select(!same(selected, where) && legal().some((move) => same(move.from, where)) ? where : null);
  }

  function ask(several) {
    const buttons = several.map((move) => h("button", { type: "button", class: "move", text: move.label, on: { click: () => done(move) } }));
    choices.setAttribute("role", "group");
    choices.setAttribute("aria-label", "Which of these moves?");
    choices.replaceChildren(...buttons);
    buttons[0].focus();
  }

  function done(move) {
    select(null);
    choices.replaceChildren();
    choose(move.action);
  }

  function select(where) {
    selected = where;
    choices.replaceChildren();
    paint();
  }

  function name(where, symbol, playable) {
    const [row, column] = [board.labels?.rows?.[where[0]], board.labels?.columns?.[where[1]]];
    const spot = row && column ? `${column}${row}` : `row ${where[0] + 1} column ${where[1] + 1}`;
    const more = [same(selected, where) ? "selected" : playable, board.last?.some((last) => same(last, where)) ? "last move" : ""];
    return [spot, pieceName(board.game, symbol, view.mine), ...more].filter(Boolean).join(", ");
  }

  /** What may be done at a cell, in a word ("" nothing), and the probability of it, if known. */
  function offers(where) {
    const open = view.can || view.weights ? view.legal : [];
    const here = board.drop ? open.filter((move) => same(move.cell, where)) : moves_shown(open, where);
    const weight = view.weights ? here.reduce((sum, move) => sum + (view.weights.get(move.action) ?? 0), 0) : null;
    const column = board.drop && legal().some((move) => move.cell?.[1] === where[1]);
    const starts = legal().some((move) => same(move.from, where));
    const ends = legal().some((move) => same(move.cell, where) && (!move.from || same(move.from, selected)));
    const moves_there = here.some((move) => move.from) && !selected; // then arrows say it
    return { playable: ends || column ? "legal" : starts ? "can move" : "", target: ends && !board.drop, landing: board.drop && here.length > 0 && view.can, chosen: here.some((move) => !move.from && move.action === view.chosen), weight: here.length && !moves_there ? weight : null };
  }

  function moving() {
    const likely = view.legal.filter((move) => move.from && move.cell && (view.weights.get(move.action) >= LITTLE || move.action === view.chosen));
    likely.sort((one, other) => view.weights.get(one.action) - view.weights.get(other.action));
    return likely.slice(-ARROWS).map((move) => arrow(move, view.weights.get(move.action) ?? 0));
  }

  function arrow(move, weight) {
    const { centre } = SHAPES[board.shape] ?? SHAPES.square;
    const [[x0, y0], [x1, y1]] = [centre(...seen(move.from)), centre(...seen(move.cell))];
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
    const thick = 5 + 15 * Math.sqrt(weight);
    const [ex, ey] = [x1 - dx * 2.4 * thick, y1 - dy * 2.4 * thick];
    const head = `M${x1},${y1} L${ex - dy * 1.5 * thick},${ey + dx * 1.5 * thick} L${ex + dy * 1.5 * thick},${ey - dx * 1.5 * thick} Z`;
    return svg("g", { class: move.action === view.chosen ? "arrow chosen" : "arrow", opacity: Math.min(0.85, 0.3 + weight) },
      svg("path", { class: "shaft", d: `M${x0 + dx * 22},${y0 + dy * 22} L${ex},${ey}`, "stroke-width": thick }), svg("path", { class: "tip", d: head }));
  }

  function moves_shown(open, where) {
    return open.filter((move) => same(move.cell, where) && (!move.from || !view.can || same(move.from, selected)));
  }

  function paint() {
    const line = view.over ? winning(board) : [];
    cells.forEach((row, r) => row.forEach((drawn, c) => {
      const where = seen([r, c]);
      const symbol = board.cells[where[0]][where[1]];
      const offer = offers(where);
      stand(drawn, symbol, r, line.some((won) => same(won, where)));
      mark(drawn, where, symbol, offer, line.some((won) => same(won, where)));
      const classes = ["cell", offer.playable && "legal", offer.target && selected && "target", same(selected, where) && "selected", offer.landing && "landing"];
      drawn.node.setAttribute("class", classes.filter(Boolean).join(" "));
      drawn.node.setAttribute("aria-label", name(where, symbol, offer.playable));
    }));
    arrows.replaceChildren(...(view.weights && !selected ? moving() : []));
    cells[at[0]]?.[at[1]]?.node.setAttribute("tabindex", 0);
  }

  function stand(drawn, symbol, r, won) {
    if (drawn.symbol !== symbol) {
      drawn.symbol = symbol;
      const shown = symbol === "" ? [] : [svg("g", { class: board.drop && view.animate ? "body falls" : "body" }, piece(board.game, symbol))];
      if (board.drop && shown.length) shown[0].style.setProperty("--from", `${-(r + 1) * 100}px`);
      drawn.piece.replaceChildren(...shown);
    }
    drawn.piece.setAttribute("class", won ? "at won" : symbol === "?" && view.weights ? "at under" : "at");
  }

  function mark(drawn, where, symbol, offer, won) {
    const last = board.last?.some((found) => same(found, where));
    drawn.tile?.classList.toggle("last", Boolean(last));
    drawn.tile?.classList.toggle("hole", symbol === "?");
    const parts = [];
    if (last && board.shape !== "square") parts.push(svg("circle", { class: `last on${symbol}`, r: 13 }));
    if (last && board.drop) parts.push(svg("circle", { class: `last on${symbol}`, r: 13 }));
    const mine = String(view.mine ?? 0);
    if (offer.playable === "legal" && view.can && symbol === "" && !selected && !board.drop) parts.push(svg("g", { class: "ghost" }, piece(board.game, board.game === "chess" ? "P" : mine)));
    if (offer.target && selected) parts.push(symbol === "" ? svg("circle", { class: "dot", r: 15 }) : svg("circle", { class: "ring", r: 43 }));
    if (offer.landing) parts.push(svg("g", { class: "ghost" }, piece(board.game, mine)));
    if (offer.chosen) parts.push(svg("circle", { class: "taken", r: 41 }));
    if (won) parts.push(svg("circle", { class: "of-line", r: 42 }));
    if (offer.weight !== null && offer.weight >= LITTLE) parts.push(svg("g", { class: "weight" },
      svg("circle", { r: 10 + 30 * Math.sqrt(offer.weight) }), offer.weight >= 2 * LITTLE ? svg("text", { y: 9, text: `${Math.round(100 * offer.weight)}` }) : null));
    drawn.mark.replaceChildren(...parts);
  }

  // A column is one thing to point at: the place where the disc will land shows.
  function point(event) {
    if (!board?.drop) return;
    const found = place(event.target.closest?.(".cell"));
    cells.forEach((row) => row.forEach((drawn, c) => drawn.mark.classList.toggle("near", found !== null && event.type !== "pointerleave" && c === found[1])));
  }
  node.addEventListener("pointerover", point);
  node.addEventListener("pointerleave", point);
  node.addEventListener("focusin", point);

  return {
    set(next, shown) {
      const key = [next.game, next.rows, next.columns, next.shape, next.drop, turned(next, shown.mine), JSON.stringify(next.labels ?? null)].join();
      const fresh = key !== built;
      const held = !fresh && root.contains(document.activeElement);
      [board, view, built] = [next, { ...shown, animate: !fresh && shown.animate !== false }, key];
      if (fresh) {
        at = [board.rows - 1 - (board.rows >> 1), board.columns >> 1];
        selected = null;
        build();
      }
      if (selected && !legal().some((move) => same(move.from, selected))) selected = null;
      paint();
      if (held && !root.contains(document.activeElement)) reach(at);
    },
    focus() { reach(at); },
    destroy() {
      for (const kind of ["pointerover", "pointerleave", "focusin"]) node.removeEventListener(kind, point);
      node.replaceChildren();
    },
  };
}

// OpenSpiel's short names of matrix games, in full.
const IN_FULL = {
  matrix_bos: "Bach or Stravinsky", matrix_brps: "Biased rock-paper-scissors", matrix_cd: "Chicken", matrix_coordination: "Coordination", matrix_mp: "Matching pennies",
  matrix_pd: "Prisoner's dilemma", matrix_rps: "Rock-paper-scissors", matrix_rpsw: "Rock-paper-scissors-water", matrix_sh: "Stag hunt", matrix_shapleys_game: "Shapley's game",
};

/** "openspiel/connect_four(rows=6)" -> "Connect four", "football/5_vs_5" -> "Football 5 vs 5", "my_games:Auction" -> "Auction". */
export function title(game) {
  const [, family, name] = /^(?:([^/(]*)\/)?([^(]*)/.exec(game), short = name.replace(/^.*:/, "");
  if (IN_FULL[short]) return IN_FULL[short];
  const text = (/^\d/.test(short) && family ? `${family} ${short}` : short).replaceAll("_", " ");
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}

/** The cells that won: a line of equal pieces, or a chain from edge to edge; [] if there is none. */
function winning(board) {
  if (IN_A_ROW[board.game]) return inARow(board, IN_A_ROW[board.game]);
  return board.shape === "hex" ? chain(board, "0") ?? chain(board, "1") ?? [] : [];
}

function inARow(board, many) {
  for (let r = 0; r < board.rows; r++) for (let c = 0; c < board.columns; c++) {
    const symbol = board.cells[r][c];
    if (symbol !== "0" && symbol !== "1") continue;
    for (const [dr, dc] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      const line = Array.from({ length: many }, (_, k) => [r + k * dr, c + k * dc]);
      if (line.every(([y, x]) => board.cells[y]?.[x] === symbol)) return line;
    }
  }
  return [];
}

function chain(board, symbol) {
  const down = symbol === "0";
  const starts = Array.from({ length: down ? board.columns : board.rows }, (_, k) => (down ? [0, k] : [k, 0])).filter(([r, c]) => board.cells[r][c] === symbol);
  const before = new Map(starts.map((at) => [at.join(), null]));
  const queue = [...starts];
  while (queue.length) { // the shortest chain
    const [r, c] = queue.shift();
    if ((down ? r : c) === (down ? board.rows : board.columns) - 1) {
      const path = [];
      for (let at = [r, c]; at; at = before.get(at.join())) path.push(at);
      return path;
    }
    for (const [dr, dc] of [[0, 1], [0, -1], [1, 0], [-1, 0], [1, -1], [-1, 1]]) {
      const next = [r + dr, c + dc];
      if (board.cells[next[0]]?.[next[1]] !== symbol || before.has(next.join())) continue;
      before.set(next.join(), [r, c]);
      queue.push(next);
    }
  }
  return null;
}
