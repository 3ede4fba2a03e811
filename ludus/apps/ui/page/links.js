// Where policies lead: their addresses, games between them, and lists of them with their shares.

import { h } from "./dom.js";
import { share, SMALL } from "./measured.js";

// Whose policies a population has: "player 0", "players 0, 1".
export const drawnBy = ({ players }) => (players.length > 1 ? `players ${players.join(", ")}` : `player ${players[0]}`);

export const policyAddress = (run, population, policy) => `#/run/${run}/policy/${population}/${encodeURIComponent(policy)}`;

export function policyLink(run, population, policy, text = policy) {
  return h("a", { href: policyAddress(run, population, policy), text });
}

// Who sits where when some seats are given: the others play the last meta-strategy. players: how many; given: player -> text of a seat.
export function seats(players, given) {
  return Array.from({ length: players }, (_, player) => given[player] ?? "@meta");
}

export const seat = (player, policy) => `@${player}/${policy}`;

function address(run, page, chosen) {
  return `#/run/${run}/${page}?seats=${chosen.map(encodeURIComponent).join(",")}`;
}

// What one can do with a profile, as links; nothing in a snapshot, which can play nothing.
// can: of the panel "overview"; chosen: [P] texts of seats; against: [{ player, name }] whose seat a person may take, and whom that is against;
// tree: whether to offer the game tree.
export function games({ source, run, can, chosen, against = [], tree = false }) {
  if (!source.live || !source.may.play) return [];
  const play = ({ player, name }) => h("a", { class: "more", href: address(run, "play", chosen.map((who, seated) => (seated === player ? "person" : who))), text: `Play against ${name}` });
  return [
    ...(can.play ? [h("a", { class: "more main", href: address(run, "show", chosen), text: "Show me a game" }), ...against.map(play)] : []),
    ...(can.tree && tree ? [h("a", { class: "more", href: address(run, "tree", chosen), text: "Open in the game tree" })] : []),
  ];
}

// A list of policies with bars as long as their probabilities, likeliest first. entries: [{ population, policy, probability }]; most: entries shown.
export function shares(run, entries, most = 8) {
  const sorted = entries.filter(({ probability }) => probability >= SMALL).sort((a, b) => b.probability - a.probability);
  const rest = sorted.slice(most).reduce((sum, { probability }) => sum + probability, 0);
  const item = ({ population, policy, probability }) => h("li", null,
    h("span", { class: "share-name" }, policyLink(run, population, policy)),
    h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * probability).toFixed(1)}%` } })),
    h("span", { class: "share-text", text: share(probability) }));
  return h("ol", { class: "shares" }, sorted.slice(0, most).map(item), rest > 0 && h("li", { class: "faint", text: `and ${sorted.length - most} more with ${share(rest)}` }));
}

// Fills a node anew only where what it tells has changed, so that a focus in it stays, and nothing is read out twice.
export function refill(node, told, fill) {
  const key = JSON.stringify(told);
  if (node.told === key) return;
  node.told = key;
  node.replaceChildren(...fill());
}
