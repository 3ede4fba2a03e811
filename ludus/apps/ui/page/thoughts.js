// A decision's moves in a table: how likely each is, what it is worth, and what the mixture would answer.

import { h } from "./dom.js";
import { probability, share } from "./measured.js";
import { called } from "./members.js";
import { signed } from "./outcomes.js";

const FEW = 8;

/** Bars of a decision's moves, likeliest first. decision: as in a frame; its `probs` and `values` are per legal move, or null. */
export function thoughts(decision, { most = FEW } = {}) {
  const meta = decision.hint?.meta ?? null;
  const rows = decision.legal.map((move, k) => ({ move, share: decision.probs?.[k] ?? null, worth: decision.values?.[k] ?? null, meta: meta?.[k] ?? null }));
  rows.sort((one, other) => (other.share ?? other.meta ?? 0) - (one.share ?? one.meta ?? 0));
  const chosen = rows.findIndex((row) => row.move.action === decision.chosen);
  const shown = rows.slice(0, most);
  if (chosen >= most) shown.push(rows[chosen]);
  const has = { worth: rows.some((row) => row.worth !== null), meta: meta !== null };
  const head = h("tr", null, h("th", { class: "text", scope: "col", text: "Move" }), h("th", { class: "text", scope: "col", text: "Probability" }),
    has.worth ? h("th", { scope: "col", text: "Value" }) : null, has.meta ? h("th", { scope: "col", text: "Mixture" }) : null);
  const body = shown.map((row) => h("tr", { class: row.move.action === decision.chosen ? "chosen" : null },
    h("th", { class: "text", scope: "row" }, row.move.label, row.move.action === decision.chosen ? h("span", { class: "unseen", text: ", chosen" }) : null),
    h("td", { class: "text" }, probability(row.share)), has.worth ? h("td", { text: signed(row.worth) }) : null, has.meta ? h("td", { text: share(row.meta) }) : null));
  const hidden = rows.length - shown.length;
  return h("div", { class: "thinking" }, h("table", { class: "thought-table" }, h("thead", null, head), h("tbody", null, body)),
    hidden > 0 ? h("p", { class: "soft", text: `and ${hidden} less likely` }) : null);
}

/** The panel of hints at a table. toggle(on): whether the board shows it too. */
export function hintPanel(node, decision, { onBoard, toggle }) {
  const box = h("input", { type: "checkbox", checked: onBoard, on: { change: () => toggle(box.checked) } });
  const held = node.contains(document.activeElement);
  node.replaceChildren(h("section", { class: "card", "aria-label": "Hints" },
    h("div", { class: "head" }, h("h2", { text: "Hints" }), h("label", { class: "tick small" }, box, h("span", { text: "on the board" }))),
    h("p", { class: "hint", text: told(decision) }), decision.probs || decision.values ? thoughts(decision) : null));
  if (held) box.focus();
}

function told(decision) {
  const policy = called(decision.hint?.policy || decision.policy || "the policy");
  const worth = decision.value === null || decision.value === undefined ? "" : ` The position is worth ${signed(decision.value)}.`;
  const mixture = decision.hint?.meta ? " The last column is the mixture’s answer." : "";
  return [decision.probs || decision.values ? `What ${policy} would play.${worth}${mixture}` : "", decision.hint?.values ?? "", decision.hint?.how ?? ""].filter(Boolean).join(" ");
}
