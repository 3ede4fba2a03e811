// How games end, in words and numbers.

import { number } from "./charts.js";

/** "+1", "−1", "0"; "–" where a return is not known. */
export function signed(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 ? `+${number(value)}` : number(value);
}

/** How a game ended for one player among others: "won", "drawn" or "lost"; "" where that means nothing. */
export function ending(returns, player) {
  const others = returns.filter((_, k) => k !== player);
  if (!others.length || player === null || player === undefined) return "";
  const best = Math.max(...others);
  return returns[player] > best ? "won" : returns[player] < best ? "lost" : "drawn";
}

/** Whether a game came to an end of its own; else `over` says why it could not go on. */
export function isEnd(over) {
  return over === "terminated" || over === "truncated";
}

/** Games won, by name, of results `[{returns, seats}]`; a draw is a share of a game for each of the best. */
export function scores(results) {
  const score = new Map();
  for (const { returns, seats } of results) {
    if (returns.length < 2) continue;
    const best = Math.max(...returns);
    const winners = seats.filter((_, k) => returns[k] === best);
    for (const name of winners) score.set(name, (score.get(name) ?? 0) + 1 / winners.length);
  }
  return score;
}
