// An experiment: whether its runs improve, as a mean over their seeds, and each run as a row.

import { card, empty, h, sentence, write } from "./dom.js";
import { percent, span, table, whole } from "./charts.js";
import { doesItImprove, estimate } from "./answers.js";
import { refill } from "./links.js";

const AT_WORK = ["running", "paused", "stopping"];

export async function show(root, { source, params }) {
  const name = params.experiment;
  const head = h("header", { class: "run" }, h("div", { class: "who" }, h("p", { class: "kicker", text: "Experiment" }), h("h1", { text: name }), h("p", { class: "lead" })));
  const now = whatHappensNow(), place = h("div");
  root.append(head, place);
  let groups = [];  // { improves, rows, node } of each group of settings

  async function load() {
    const { runs, experiments } = await source.get("runs");
    const own = runs.filter((run) => run.group === name);
    if (!own.length) return void place.replaceChildren(empty(`No run of the experiment ${name} is here (any more).`, h("a", { href: "#/", text: "All runs" })));
    const line = experiments.find((one) => one.name === name);
    const data = await source.get("experiment", { runs: own.map(({ id }) => id).sort().join(",") });
    write(head.querySelector(".lead"), `${own[0].scenario} on ${own[0].game}, ${whole(count(line))} runs.`);
    if (groups.length !== data.length) {
      for (const { improves } of groups) improves.close();
      groups = data.map((_, k) => group(k === 0 ? now : null));
      place.replaceChildren(...groups.map(({ node }) => node));
    }
    now.set(own, line);
    data.forEach((one, k) => groups[k].set(one, own));
  }
  await load();
  return { update: load, close() { for (const { improves } of groups) improves.close(); } };
}

// Runs that the experiment lists, begun or not.
const count = ({ states }) => Object.values(states).reduce((sum, n) => sum + n, 0);

// now: the card that the first group has beside it, null for others.
function group(now) {
  const improves = doesItImprove(), title = h("h2"), { node: list, body } = card("Runs");
  const node = h("div", null, title, h("div", { class: "five" }, improves.node, now?.node), list);
  let measure = "";
  const grid = table(body, {
    label: "Runs of the experiment", rows: [], limit: 100, sort: { key: "seed", down: false }, id: (run) => run.id,
    columns: [
      { key: "name", title: "run", text: true, format: (name, run) => h("a", { href: `#/run/${run.id}`, text: name }) },
      { key: "seed", title: "seed", format: whole },
      { key: "state", title: "state", text: true, format: (text) => h("span", { class: `pill ${text}`, text }) },
      { key: "value", title: "value", value: (run) => run.now.value, format: (_, run) => estimate(run.now, measure) || "–" },
      { key: "verdict", title: "does it improve?", text: true },
      { key: "seconds", title: "time", format: span },
    ],
  });
  return {
    node, improves,
    set(data) {
      title.hidden = !data.settings;
      write(title, data.settings);
      measure = data.improvement.measure;
      improves.set(data.improvement);
      write(list.querySelector("th[data-key='value'] button"), measure || "value");
      grid.set(data.runs);
    },
  };
}

function whatHappensNow() {
  const { node, body } = card("What happens now?");
  node.classList.add("happens");
  const said = h("p", { class: "verdict" }), bar = h("div", { class: "progress", "aria-hidden": "true" }, h("i"));
  body.append(said, bar);
  return {
    node,
    set(runs, line) {
      const total = count(line), { finished = 0, "not begun": due = 0 } = line.states;
      const busy = runs.filter((run) => AT_WORK.includes(run.state.split(" ")[0]));
      const done = runs.reduce((sum, run) => sum + (AT_WORK.includes(run.state.split(" ")[0]) ? run.fraction ?? 0 : 1), 0) / total;
      const left = busy.map((run) => run.seconds_left).filter((v) => v !== null && v !== undefined);
      const going = busy.length > 0 || (due > 0 && line.at_work);
      const word = going ? "Running" : finished === total ? "Finished" : due ? "Stopped" : "Ended";
      const parts = Object.entries(line.states).map(([state, n]) => `${whole(n)} ${state}`).join(", ");
      const notes = runs.reduce((sum, run) => sum + run.warnings + run.errors, 0);
      bar.hidden = !going;
      bar.firstChild.style.width = percent(done, 1);
      refill(said, [word, parts, done, left, notes], () => [
        h("strong", { class: ["Ended", "Stopped"].includes(word) ? "even" : "good", text: word }), ` ${sentence(`${parts} of ${whole(total)} runs`)}`,
        going ? ` ${percent(done)} done.` : ` The longest took ${span(Math.max(...runs.map((run) => run.seconds)))}.`,
        left.length ? ` About ${span(Math.max(...left))} left.` : "", notes ? ` ${whole(notes)} warnings and errors.` : "",
      ]);
    },
  };
}
