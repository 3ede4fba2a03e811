// All that learners measure, in small charts: losses, entropy, speed, statistics of episodes, the machine. Each is drawn when it comes near the screen.

import { card, clear, empty, h, write } from "./dom.js";
import { lines } from "./charts.js";
import { colour } from "./colours.js";
import { legendItems } from "./view.js";

const NEAR = "300px";  // of the screen, from which a chart is drawn
const KINDS = [
  ["Losses and updates", () => true],
  ["Speed and data", (name) => /^(steps per second|rows|lag|episode length|epochs|tails)/.test(name)],
  ["Statistics of episodes", (name) => name.startsWith("statistics/")],
];
const MACHINE = "machine";  // a learner of this name is the machine

const plain = (name) => name.replace(/^statistics\//, "").replaceAll("_", " ");

// A card with a chart of each metric. view: shared with the charts of returns (view.js); its `over` is what x is, its `match(name)` which learners are shown.
// set(learners, tails): of the panel "learning" (where several were averaged with bands: { metric: { x, low, high } }), and what is newer than it by learner: { [learner]: { decisions, …: [x], metrics: { name: [values] } } }.
export function metricsGrid(view, title = "Metrics") {
  const { node, head, hint, body } = card(title);
  const filter = h("input", { class: "field", type: "search", placeholder: "Filter metrics", "aria-label": "Show only metrics whose name holds this", on: { input: () => draw() } });
  const legend = h("ul", { class: "legend" }), sections = h("div");
  const tools = h("div", { class: "tools" }, filter);
  head.append(tools);
  body.append(legend, sections);
  const cells = new Map();  // metric -> { node, place, chart, data, near }
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      const cell = cells.get(target.dataset.metric);
      if (!cell) continue;
      cell.near = isIntersecting;
      paint(cell);
    }
  }, { rootMargin: NEAR });
  let learners = [], tails = {}, shown = "";

  function paint(cell) {
    if (!cell.near || cell.node.hidden || cell.drawn === cell.data) return;
    cell.drawn = cell.data;
    if (cell.chart) cell.chart.set(cell.data);
    else cell.chart = lines(cell.place, cell.data, view);
  }

  function cellOf(name) {
    if (cells.has(name)) return cells.get(name);
    const place = h("div"), element = h("section", { class: "metric", dataset: { metric: name }, "aria-label": plain(name) }, h("h4", { text: plain(name), title: plain(name) }), place);
    const cell = { node: element, place, chart: null, data: null, drawn: null, near: false };
    cells.set(name, cell);
    observer.observe(element);
    return cell;
  }

  function dataOf(name, known) {
    const machine = tails[MACHINE], of = known.filter((learner) => name in learner.metrics || name in (tails[learner.learner]?.metrics ?? {}));
    const newer = (tail) => (tail?.metrics?.[name] ? { x: tail[view.over] ?? [], values: tail.metrics[name] } : undefined);
    const series = of.map((learner) => ({
      name: learner.learner, x: learner.bands?.[name]?.x ?? learner.over[view.over] ?? [], values: learner.metrics[name] ?? [], low: learner.bands?.[name]?.low, high: learner.bands?.[name]?.high, colour: () => colour(learners.indexOf(learner), learners.length), tail: newer(tails[learner.learner]),
    }));
    if (machine?.metrics?.[name]) series.push({ name: MACHINE, x: [], values: [], colour: () => colour(0), tail: newer({ ...machine, [view.over]: machine.seconds }) });
    return { xTitle: series.length && series[0].name === MACHINE ? "seconds" : view.over, yTitle: plain(name), series, height: 170, legend: false, bare: true };
  }

  function draw() {
    const known = learners.filter((learner) => view.match(learner.learner)), wanted = filter.value.trim().toLowerCase();
    const names = [...new Set([...known.flatMap((learner) => [...Object.keys(learner.metrics), ...Object.keys(tails[learner.learner]?.metrics ?? {})]), ...Object.keys(tails[MACHINE]?.metrics ?? {})])];
    const kind = (name) => (name in (tails[MACHINE]?.metrics ?? {}) ? "Hardware" : KINDS.findLast(([, holds]) => holds(name))[0]);
    const seen = names.filter((name) => !wanted || plain(name).toLowerCase().includes(wanted));
    node.hidden = !names.length;
    write(hint, `${seen.length} of ${names.length} metrics${known.length < learners.length ? ` of ${known.length} of ${learners.length} learners` : ""}. Drag to zoom, double click to reset; + and − zoom by keyboard.`);
    const kinds = [...KINDS.map(([title]) => title), "Hardware"].map((title) => [title, seen.filter((name) => kind(name) === title)]).filter(([, list]) => list.length);
    const key = JSON.stringify(kinds);
    if (key !== shown) {
      shown = key;
      clear(sections).append(...(kinds.length ? kinds.map(([title, list]) => h("section", null, h("h3", { text: title }), h("div", { class: "metrics" }, list.map((name) => cellOf(name).node)))) : [empty("No metric has this in its name.")]));
    }
    legend.hidden = known.length < 2;
    const entries = known.map((learner) => ({ name: learner.learner, colour: colour(learners.indexOf(learner), learners.length) }));
    const painted = JSON.stringify([entries, [...view.hidden]]);
    if (painted !== legend.dataset.painted) {
      const focus = [...legend.querySelectorAll("button")].indexOf(document.activeElement);
      legend.dataset.painted = painted;
      clear(legend).append(...(known.length < 2 ? [] : legendItems(entries, view)));
      legend.querySelectorAll("button")[focus]?.focus();
    }
    for (const name of seen) {
      const cell = cellOf(name);
      cell.data = dataOf(name, known);
      paint(cell);
    }
  }

  const print = () => { for (const cell of cells.values()) { cell.near = true; paint(cell); } };  // all that will be on paper
  window.addEventListener("beforeprint", print);
  view.followers.add(() => draw());
  return {
    node, tools,
    set(next, newer = {}) {
      learners = next;
      tails = newer;
      draw();
    },
    close() {
      observer.disconnect();
      window.removeEventListener("beforeprint", print);
      for (const { chart } of cells.values()) chart?.destroy();
    },
  };
}
