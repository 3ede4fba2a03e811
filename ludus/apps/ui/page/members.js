// A field that finds a policy among many by what is typed; for seats of tables, replays and the game tree.

import { h } from "./dom.js";

/** Names of policies as one text in an address, and back. */
export const joined = (list) => list.join(",");
export const names = (text) => (text ? text.split(",") : []);

/** Of a run's seats: who can play for a player, who does if nobody says otherwise, and what the player is called. */
export const membersFor = (seats, player) => seats.members.filter((member) => member.players?.includes(player) ?? true);
export function defaultFor(seats, player) {
  const able = membersFor(seats, player);
  const wanted = seats.defaults?.[player];
  return able.find((member) => member.name === wanted)?.name ?? able.find((member) => member.name === "@best")?.name ?? able[0]?.name ?? "random";
}
export function playerName(seats, player) {
  const name = seats.players[player]?.name?.replaceAll("_", " ") || `player ${player}`;
  return name[0].toUpperCase() + name.slice(1);
}

const SAID = { "@meta": "the mixture", "@best": "the best policy", "@strongest": "the strongest member", "@newest": "the newest policy", random: "random play" };

/** What a policy that was asked for by name is called in a sentence. */
export const called = (name) => (Object.hasOwn(SAID, name) ? SAID[name] : name.replace(/^@/, "").replace(/^bot:/, "bot "));

const SHOWN = 60; // of those that match
let made = 0;

/**
 * members: [{name, label}] · value: the chosen name · label: what the field is called · onpick(name)
 * Returns a node with `.value`, the name that is chosen. A name that is not among the members may be typed too ("@12", "bot:random").
 */
export function memberField({ members, value, label, onpick = () => {} }) {
  const id = `members-${++made}`;
  const labels = new Map(members.map((member) => [member.name, member.label]));
  let chosen = value;
  let at = -1;
  let found = [];
  const list = h("ul", { class: "options", id, role: "listbox", "aria-label": label, hidden: true });
  const field = h("input", { type: "text", class: "field", role: "combobox", "aria-label": label, "aria-expanded": "false", "aria-controls": id, "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
    value: text(value), on: { focus: () => { field.select(); open(""); }, input: () => open(field.value), blur: leave, keydown: onkey, click: () => list.hidden && open("") } });
  const node = h("div", { class: "member-field" }, field, list);

  function text(name) {
    return labels.get(name) ?? name;
  }

  function open(typed) {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const all = members.filter((member) => words.every((word) => `${member.label} ${member.name}`.toLowerCase().includes(word)));
    found = all.slice(0, SHOWN);
    at = found.findIndex((member) => member.name === chosen);
    if (typed && at < 0) at = found.length ? 0 : -1;
    const more = all.length > SHOWN ? [h("li", { class: "soft", role: "presentation", text: `${all.length - SHOWN} more: type to find one.` })] : [];
    const none = found.length ? [] : [h("li", { class: "soft", role: "presentation", text: typed ? `“${typed}” is taken as it stands.` : "Nothing to choose from." })];
    list.replaceChildren(...found.map(option), ...more, ...none);
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    point();
  }

  function option(member, k) {
    const other = member.name === member.label ? null : h("span", { class: "soft", text: member.name });
    return h("li", { id: `${id}-${k}`, role: "option", "aria-selected": String(member.name === chosen), on: { pointerdown: (event) => { event.preventDefault(); pick(k); } } }, h("span", { text: member.label }), other);
  }

  function point() {
    [...list.children].forEach((item, k) => item.classList.toggle("at", k === at));
    if (at >= 0) field.setAttribute("aria-activedescendant", `${id}-${at}`);
    else field.removeAttribute("aria-activedescendant");
    if (at >= 0) list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function close() {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function pick(k) {
    close();
    take(found[k].name);
  }

  function take(name) {
    field.value = text(name);
    if (name === chosen) return;
    chosen = name;
    onpick(name);
  }

  /** The name that is meant by what stands in the field. */
  function meant() {
    const typed = field.value.trim();
    return members.find((member) => member.label === typed || member.name === typed)?.name ?? (typed || chosen);
  }

  function leave() {
    if (list.hidden) return;
    close();
    take(meant());
  }

  function onkey(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) open("");
      else at = found.length ? (at + (event.key === "ArrowDown" ? 1 : found.length - 1) + (at < 0 && event.key === "ArrowUp" ? 1 : 0)) % found.length : -1;
      point();
    } else if (event.key === "Enter" && !list.hidden) {
      if (at >= 0) pick(at);
      else leave();
    } else if (event.key === "Escape" && !list.hidden) {
      field.value = text(chosen);
      close();
    } else return;
    event.preventDefault();
  }

  Object.defineProperty(node, "value", { get: () => (list.hidden ? chosen : meant()) });
  return node;
}
