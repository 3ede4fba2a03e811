// Building the page: nodes are made by h() and svg(), never from markup, so no text of a run can become code.

const SVG = "http://www.w3.org/2000/svg";

// h("button", { class: "more", text: "Show all", on: { click: f }, "aria-pressed": "true", dataset: { k: 1 }, style: { width: "3em" } }, ...children)
// An attribute that is null, undefined or false is left out; true is an empty attribute. A child may be a node, a text, null, or a list of those.
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for SVG, whose elements have a namespace of their own.
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "style") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function clear(node) {
  node.replaceChildren();
  return node;
}

// Sets a text only where it differs: what a screen reader or a selection is on stays untouched.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

// Paths in a field of 24 × 24.
const ICONS = {
  pause: "M8 5v14M16 5v14",
  play: "M8 5l11 7-11 7z",
  stop: "M6 6h12v12H6z",
  save: "M12 4v11m0 0l-4-4m4 4l4-4M5 19h14",
  speed: "M4 18a8 8 0 1 1 16 0M12 18l4-6",
  warning: "M12 4l9 16H3zM12 10v4m0 3v.5",
  close: "M6 6l12 12M18 6L6 18",
  back: "M14 5l-7 7 7 7",
  forth: "M10 5l7 7-7 7",
  first: "M17 5l-7 7 7 7M6 5v14",
  last: "M7 5l7 7-7 7M18 5v14",
  check: "M5 13l4 4L19 7",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l5 5",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8M4 21c1-5 4-7 8-7s7 2 8 7",
  again: "M19 12a7 7 0 1 1-2-5m2-3v4h-4",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  download: "M12 4v11m0 0l-4-4m4 4l4-4M5 19h14",
};

// A drawing beside a word; it says nothing to a screen reader. name: one of those above.
export function icon(name) {
  const path = svg("path", { d: ICONS[name] });
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, path);
}

// Read out by screen readers, shown to nobody.
export function announce(text) {
  const place = document.getElementById("announcer");
  if (!place) return;
  place.textContent = place.textContent === text ? `${text}\u00a0` : text;  // the same text twice is read twice
}

// Where there is nothing to show (yet): says what will appear, and when.
export function empty(text, ...children) {
  return h("div", { class: "empty" }, h("p", { text }), children);
}

// What went wrong, as a sentence, with a way on. again: what the button "Try again" does, or null for none.
export function failure(error, again = null) {
  const button = again && h("button", { type: "button", class: "more", text: "Try again", on: { click: again } });
  return h("div", { class: "empty failure", role: "alert" }, h("p", null, icon("warning"), ` ${sentence(error?.message ?? String(error))}`), button);
}

// A moment where the reader is: "2026-11-25 21:07:18 GMT+1", as Swedes write it, with the time zone. seconds: Unix time; "–" for what is none.
export function moment(seconds) {
  const date = new Date(1000 * seconds);
  if (Number.isNaN(date.getTime())) return "–";
  const zone = new Intl.DateTimeFormat("en-US", { timeZoneName: "short" }).formatToParts(date).find(({ type }) => type === "timeZoneName").value;
  return `${date.toLocaleString("sv-SE")} ${zone}`;
}

// The same as an element, whose title says the moment in UTC. text: what is written in its place.
export function time(seconds, text = null) {
  const date = new Date(1000 * seconds);
  if (Number.isNaN(date.getTime())) return h("time", { text: "–" });
  const iso = date.toISOString();
  return h("time", { datetime: iso, title: `${iso.replace("T", " ").slice(0, 19)} UTC`, text: text ?? moment(seconds) });
}

export function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".") : "";
}

// A row of buttons of which one is pressed. Returns the row with .choose(k), which presses without calling.
export function picker(label, labels, chosen, choose) {
  const press = (k) => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === k)));
  const buttons = labels.map((text, k) => h("button", { type: "button", text, on: { click: () => { press(k); choose(k); } } }));
  const row = h("div", { class: "controls", role: "group", "aria-label": label }, buttons);
  press(chosen);
  row.choose = press;
  return row;
}

// A card with a heading. Returns { node, head, body, hint }: head for controls, hint for a sentence on what is seen.
export function card(title, { hint = "", level = 2, controls = [] } = {}) {
  const id = `card-${(card.count = (card.count ?? 0) + 1)}`;
  const head = h("div", { class: "head" }, h(`h${level}`, { id, text: title }), controls);
  const told = h("p", { class: "hint", text: hint });
  const body = h("div");
  return { node: h("section", { class: "card", "aria-labelledby": id }, head, told, body), head, hint: told, body };
}
