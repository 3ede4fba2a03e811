// What charts that belong together share: the cursor, the stretch that is zoomed into, which series are shown, smoothing and the scale.

import { h, picker } from "./dom.js";

// One view of several charts. over: what x is, where there is a choice; zoom: [low, high] of x, or null; hidden: names of series that are not shown;
// filter: a part of the names of those that are drawn at all; smoothing: 0 to 0.99; log: of y. followers: called after each change.
export class View {
  constructor(over = "") {
    this.over = over;
    this.filter = "";
    this.charts = new Set();
    this.zoom = null;
    this.hidden = new Set();
    this.smoothing = 0;
    this.log = null;  // null: as each chart has it
    this.followers = new Set();
  }

  // Another x has another stretch.
  set(change) {
    if (change.over && change.over !== this.over) this.zoom = null;
    Object.assign(this, change);
    for (const follow of this.followers) follow();
    for (const chart of this.charts) chart.redraw();
  }

  match(name) { return name.toLowerCase().includes(this.filter); }

  // The cursor of one chart stands at x (null: nowhere): so does that of the others.
  point(x, from) {
    for (const chart of this.charts) if (chart !== from) chart.follow(x);
  }

  // Only this series is shown; or all, where it is the only one already. flip: it alone is shown or hidden.
  choose(name, names, flip) {
    if (flip) {
      if (!this.hidden.delete(name)) this.hidden.add(name);
    } else {
      const alone = names.every((other) => this.hidden.has(other) === (other !== name));
      this.hidden = new Set(alone ? [] : names.filter((other) => other !== name));
    }
    this.set({});
  }
}

const HINT = "Click: only this one, again: all. Ctrl or Shift and click: show or hide it.";

// Buttons of series, to isolate and to hide. entries: [{ name, colour, dashed? }].
export function legendItems(entries, view) {
  const names = entries.map(({ name }) => name);
  return entries.map(({ name, colour, dashed }) => {
    const choose = (event) => view.choose(name, names, event.ctrlKey || event.shiftKey || event.metaKey);
    const key = (event) => {
      if ((event.key !== "Enter" && event.key !== " ") || !(event.ctrlKey || event.shiftKey || event.metaKey)) return;
      event.preventDefault();
      choose(event);
    };
    const mark = h("span", { class: dashed ? "mark dashed" : "mark", style: { "--colour": colour } });
    return h("li", null, h("button", { type: "button", title: HINT, "aria-pressed": String(!view.hidden.has(name)), on: { click: choose, keydown: key } }, mark, name));
  });
}

// Controls of a view: which series, smoothing, the scale of y, and back from a zoom.
export function viewTools(view) {
  const told = h("output", { text: view.smoothing.toFixed(2) });
  const slider = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: String(view.smoothing), "aria-label": "Smoothing: weight of an exponential moving average", on: { input: () => { told.textContent = Number(slider.value).toFixed(2); view.set({ smoothing: Number(slider.value) }); } } });
  const back = h("button", { type: "button", class: "more", text: "Reset zoom", hidden: view.zoom === null, on: { click: () => view.set({ zoom: null }) } });
  view.followers.add(() => { back.hidden = view.zoom === null; });
  const filter = h("input", { class: "field", type: "search", placeholder: "Filter learners", "aria-label": "Show only learners whose name holds this", on: { input: () => view.set({ filter: filter.value.trim().toLowerCase() }) } });
  return [filter, h("label", { class: "smoothing" }, "smoothing", slider, told), picker("Scale", ["linear", "log"], view.log ? 1 : 0, (k) => view.set({ log: k === 1 })), back];
}
