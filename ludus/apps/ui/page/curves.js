// Curves below a replay: the critics' values, and how likely the moves were that were played.

import { card, picker } from "./dom.js";
import { lines } from "./charts.js";
import { colour } from "./colours.js";
import { share } from "./measured.js";
import { signed } from "./outcomes.js";

const KINDS = [
  { name: "Value", of: (decision) => decision.value, title: "critic’s value", format: signed, range: [0, 0] }, // 0 is shown, so that small changes look small
  { name: "Probability of the move", of: played, title: "probability of the move", format: share, range: [0, 1], share: true },
];

function played(decision) {
  const place = decision.legal.findIndex((move) => move.action === decision.chosen);
  return place < 0 ? null : decision.probs?.[place] ?? null;
}

/** Of a team the mean over its agents; [[position, value]] of a player, in order. */
function points(frames, player, of) {
  return frames.flatMap((frame, k) => {
    const known = frame.decisions.filter((one) => one.player === player).map(of).filter((value) => value !== null && value !== undefined);
    return known.length ? [[k, known.reduce((sum, value) => sum + value, 0) / known.length]] : [];
  });
}

/**
 * Draws into a node: set(replay, nameOf), mark(position), close(). A replay whose policies tell neither has no card.
 */
export function curves(node) {
  const state = { replay: null, nameOf: String, kinds: [], kind: null, at: 0, chart: null };

  function set(replay, nameOf) {
    Object.assign(state, { replay, nameOf, at: 0 });
    state.kinds = KINDS.filter(({ of }) => replay.seats.some(({ player }) => points(replay.frames, player, of).length > 1));
    state.kind = state.kinds.includes(state.kind) ? state.kind : state.kinds[0];
    close();
    node.replaceChildren();
    if (!state.kind) return;
    const choice = picker("Curve", state.kinds.map(({ name }) => name), state.kinds.indexOf(state.kind), (k) => { state.kind = state.kinds[k]; draw(); });
    const made = card("Move by move", { controls: [choice], hint: `A colour for each player; the dot is the position that is shown.${replay.discount < 1 && replay.discount !== null ? ` Values are of rewards discounted by ${replay.discount} at each decision.` : ""}` });
    node.append(made.node);
    state.place = made.body;
    draw();
  }

  function data() {
    const { replay, kind, at } = state;
    const series = replay.seats.map(({ player }) => ({ player, points: points(replay.frames, player, kind.of) })).filter((one) => one.points.length);
    const drawn = series.map(({ player, points: known }) => ({ name: state.nameOf(player), x: known.map(([k]) => k), values: known.map(([, value]) => value), colour: () => colour(player) }));
    const here = series.map(({ player, points: known }) => ({ player, near: known.filter(([k]) => k <= at).at(-1) ?? known[0] }));
    const marks = here.map(({ player, near }) => ({ name: `${state.nameOf(player)}, shown`, x: [near[0]], values: [near[1]], colour: () => colour(player) }));
    return { x: [...replay.frames.keys()], series: [...drawn, ...marks], xTitle: "move", yTitle: kind.title, yRange: kind.range, share: kind.share, smooths: false, legend: false, whole: true, height: 200, format: kind.format };
  }

  function draw() {
    state.chart?.destroy();
    state.chart = lines(state.place, data());
  }

  function mark(at) {
    state.at = at;
    state.chart?.set(data());
  }

  function close() {
    state.chart?.destroy();
    state.chart = null;
  }
  return { set, mark, close };
}
