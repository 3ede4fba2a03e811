// The log of a run's events, the newest first; new ones come in at the top while the page is open.

import { card, clear, empty, h, moment, picker, time, write } from "./dom.js";
import { whole } from "./charts.js";

const AT_ONCE = 500;  // events asked for at a time
const KEPT = 5000;  // events held, and so lines on the page
const LEVELS = [["all", () => true], ["warnings and errors", (event) => event.level !== "info"], ["errors", (event) => event.level === "error"]];

export async function show(root, { source, params }) {
  const get = (after) => source.get(`runs/${params.run}/events`, { after, limit: AT_ONCE });
  const { node, head, hint, body } = card("Log");
  const state = { events: [], last: null, end: null, level: 0, text: "" };
  const list = h("ol", { class: "log", "aria-label": "Events, the newest first" });
  const none = h("div");
  const search = h("input", { class: "field", type: "search", placeholder: "Filter", "aria-label": "Filter by kind or text", on: { input: () => { state.text = search.value.toLowerCase(); draw(); } } });
  head.append(h("div", { class: "tools" }, search, picker("Level", LEVELS.map(([name]) => name), 0, (k) => { state.level = k; draw(); })));
  const more = h("button", { type: "button", class: "more", text: "Older events", on: { click: () => older() } });
  body.append(none, list, more);
  root.append(node);

  const wanted = (event) => LEVELS[state.level][1](event) && (!state.text || `${event.kind} ${event.text}`.toLowerCase().includes(state.text));
  const line = (event) => {
    return h("li", { class: event.level }, time(event.time, moment(event.time).slice(11, 19)), h("span", { class: "kind", text: event.kind }), h("span", { class: "text", text: event.text }));
  };

  function draw() {
    const shown = [...ends(), ...state.events].filter(wanted);
    clear(list).append(...shown.map(line));
    say(shown.length);
  }

  // What ended the run, where that was an error or a kill: it is the newest.
  const ends = () => (state.end ? [state.end] : []);

  function say(shown) {
    const all = state.events.length + ends().length;
    write(hint, all ? `${shown === all ? "" : `${whole(shown)} of `}${whole(all)} ${all === 1 ? "event" : "events"}, the newest first, in your local time.` : "");
    more.hidden = !source.live || !(state.events.at(-1)?.seq > 1) || all >= KEPT;
    clear(none).append(...(all ? (shown ? [] : [empty("No event matches.")]) : [empty("No events yet.")]));
  }

  // At the top, without touching what is there: who reads or marks something keeps their place.
  function add(events) {
    const fresh = [...events].reverse();
    const under = window.scrollY > list.offsetTop, before = list.scrollHeight;
    state.events = [...fresh, ...state.events].slice(0, KEPT);
    list.prepend(...fresh.filter(wanted).map(line));
    while (list.childElementCount > KEPT) list.lastChild.remove();
    if (under) window.scrollBy(0, list.scrollHeight - before);
    say(list.childElementCount);
  }

  async function older() {
    const oldest = state.events[state.events.length - 1].seq;
    const { events } = await get(Math.max(0, oldest - 1 - AT_ONCE));
    const before = events.filter((event) => event.seq < oldest).reverse().slice(0, KEPT - state.events.length);
    state.events.push(...before);
    list.append(...before.filter(wanted).map(line));
    say(list.childElementCount);
  }

  async function newer() {
    for (;;) {
      const { events, last, end } = await get(state.last);
      const none_yet = state.last === null, as_before = end?.time === state.end?.time;
      state.last = last;
      state.end = end;
      if (events.length) add(events);
      if (!as_before) draw();
      if (none_yet || events.length < AT_ONCE) return;
    }
  }

  await newer();
  if (!state.events.length && !state.end) say(0);
  return { update: async (panels) => { if (panels.has("events")) await newer(); } };
}
