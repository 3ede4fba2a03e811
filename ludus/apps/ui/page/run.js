// The frame of a run's pages: its header with progress and steering, what ended it, and its tabs.

import { announce, clear, failure, h, icon, moment, sentence, write } from "./dom.js";
import { doing } from "./live.js";
import { percent, span, whole } from "./charts.js";

const TABS = [
  { name: "overview", title: "Overview", path: "" },
  { name: "population", title: "Population", path: "/population" },
  { name: "learning", title: "Learning", path: "/learning" },
  { name: "log", title: "Log", path: "/log" },
  { name: "play", title: "Play", path: "/play", can: "play" },
  { name: "tree", title: "Game tree", path: "/tree", can: "tree" },
];
const SPEEDS = [1, 0.75, 0.5, 0.25, 0.1];
const AT_WORK = ["running", "paused", "stopping"];

// root: emptied and filled. overview: the panel. Returns { run, name, body, titleOf(tab), select(tab), update(panels), close() }.
export function frame(root, { source, run, overview }) {
  const name = overview.info.name;
  const head = header(name), ended = cause(run);
  const steering = source.may.steer ? steer(source, run) : null;
  const links = new Map(TABS.map((tab) => [tab.name, h("a", { href: `#/run/${run}${tab.path}`, text: tab.title })]));
  const body = h("div"), nav = h("nav", { class: "tabs", "aria-label": "Pages of the run" }, [...links.values()]);
  root.append(h("header", { class: "run" }, head.node, steering?.node), ended.node, nav, body);
  let known = overview, status = null;
  const show = () => {
    head.set(known, status);
    ended.set(known.cause, Boolean(status));
    steering?.set(status, status || known.can.steer ? head.state : "");  // a run that stands still may go on, and take orders then
    for (const { name: tab, can } of TABS) links.get(tab).hidden = Boolean(can) && !(source.live && known.can[can] && (can !== "play" || source.may.play));
  };
  show();
  const stop = source.onstatus(run, (next) => {
    status = next;
    show();
  });
  const clock = setInterval(head.tick, 1000);
  return {
    run, name, body,
    titleOf: (tab) => TABS.find((one) => one.name === tab)?.title,
    select(tab) {
      for (const [key, link] of links) {
        if (key === tab) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      const here = links.get(tab), left = here ? here.offsetLeft - nav.offsetLeft : 0;  // on a phone the strip is wider than the screen
      if (here && (left < nav.scrollLeft || left + here.offsetWidth > nav.scrollLeft + nav.clientWidth)) nav.scrollLeft = left - 24;
    },
    async update(panels) {
      if (!panels.has("overview")) return;
      known = await source.get(`runs/${run}/overview`);
      if (!AT_WORK.includes(known.state)) status = null;
      show();
    },
    close() {
      clearInterval(clock);
      stop();
    },
  };
}

// "psro on openspiel/leduc_poker. Reached generations=25."
function lead({ info, state, summary }) {
  const ended = summary && !AT_WORK.includes(state) && state !== "failed";  // whose cause stands below
  const place = `${info.scenario} on ${info.env}`;
  return ended ? `${place}. ${sentence(summary.stopped_by)}` : `${place}.`;
}

function header(name) {
  const pill = h("span", { class: "pill" });
  const told = h("p", { class: "lead" });
  const bar = h("div", { class: "progress", role: "progressbar", "aria-label": "Progress of the run", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i"));
  const at = h("p", { class: "at" });
  const node = h("div", { class: "who" }, h("div", { class: "name" }, h("h1", { text: name }), pill), told, h("div", { class: "going" }, bar, at));
  const one = { node, state: null, set, tick };
  let farthest = { generation: -1, all: null, share: 0 };  // of the bar: trainings of a generation that take turns each count from 0
  let left = null, came = 0, seen = null, busy = false, line = () => "";  // seconds until the end, when the newest was told; what stands under the bar

  function set(overview, status) {
    const state = status?.state ?? overview.state;
    const kind = state.split(" ")[0];  // "running at 50%"
    if (one.state !== null && one.state !== state) announce(`The run is ${state}.`);
    one.state = state;
    pill.className = `pill ${kind}`;
    write(pill, state);
    write(told, lead(overview));
    const progress = overview.progress;
    const all = status?.generations ?? progress.generations, generation = status?.generation ?? progress.generation;
    let share = shareOf(progress, status);
    if (share !== null) {
      if (generation === farthest.generation && all === farthest.all) share = Math.max(share, farthest.share);
      farthest = { generation, all, share };
    }
    busy = AT_WORK.includes(kind);
    bar.hidden = !busy || share === null;
    if (share !== null) {
      bar.firstChild.style.width = percent(share, 1);
      bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    }
    at.hidden = !busy;
    const remaining = kind === "running" ? status?.seconds_left ?? progress.seconds_left : null;
    if (remaining !== left || status !== seen) [left, came, seen] = [remaining, Date.now(), status];
    line = (elapsed) => [
      all === null ? `generation ${whole(generation)}` : `generation ${whole(generation)} of ${whole(all)}`,
      kind === "paused" ? `paused for ${span(status?.seconds ?? 0)}` : status ? doing(status, left === null ? elapsed : Infinity) : progress.doing,
      left !== null && left > elapsed ? `about ${span(Math.round(left - elapsed))} left` : "",
    ].filter(Boolean).join(" · ");
    tick();
  }

  // The time left falls each second, also between two messages.
  function tick() {
    if (busy) write(at, line((Date.now() - came) / 1000));
  }
  return one;
}

// What ended a run that failed or was interrupted, on top of all of its pages.
function cause(run) {
  const node = h("div", { class: "cause", role: "alert", hidden: true });
  let shown = null;
  return {
    node,
    // alive: whether a driver is at work again.
    set(data, alive) {
      node.hidden = !data || alive;
      const key = node.hidden ? null : JSON.stringify(data);
      if (key === shown) return;
      shown = key;
      clear(node);
      if (node.hidden) return;
      node.classList.toggle("failed", data.state === "failed");
      const facts = [["Exception", data.error], ["Where", data.place], ["Task", data.task], ["When", data.time ? moment(data.time) : ""]].filter(([, text]) => text);
      node.append(
        h("p", null, h("strong", { text: data.state === "failed" ? "The run failed: " : "The run was interrupted: " }), data.text.replace(/[.]?$/, ".")),
        h("dl", null, facts.map(([title, text]) => h("div", null, h("dt", { text: title }), h("dd", { text })))),
        h("p", null, ...coded(data.advice), " ", h("a", { href: `#/run/${run}/log`, text: "Log" })),
      );
    },
  };
}

// A text whose commands stand between backquotes.
const coded = (text) => text.split("`").map((part, k) => (k % 2 ? h("code", { text: part }) : part));

// Of the whole run, in [0, 1]; null without a limit. A status is of the task under way: it is a part of its generation.
function shareOf(progress, status) {
  const limited = (status?.generations ?? null) !== null;
  const within = limited ? Math.min(1, (Math.max(0, status.generation - 1) + (status.fraction ?? 0)) / Math.max(1, status.generations)) : 0;
  return progress.fraction === null ? (limited ? within : null) : Math.max(progress.fraction, within);
}

// ------------------------------------------------------------------------------------------------------------ steering

function steer(source, run) {
  const said = h("p", { class: "said", role: "status" });
  const order = async (what) => {
    write(said, "");
    try {
      const { status } = await source.post(`runs/${run}/order`, { ...what, session: one.session ?? undefined });
      if (what.do === "checkpoint") write(said, "A checkpoint will be written at the next place where the run may.");
      if (status) one.set(status, status.state);
    } catch (error) {
      said.replaceChildren(failure(error));
    }
  };
  const button = (name, text, act, more = "") => h("button", { type: "button", class: `more ${more}`, on: { click: act } }, icon(name), h("span", { text }));
  const pause = button("pause", "Pause", () => order({ do: "pause" }));
  const on = button("play", "Resume", () => order({ do: "go_on" }), "main");
  const speed = h("select", { class: "field", on: { change: (event) => order({ do: "throttle", speed: Number(event.target.value) }) } }, SPEEDS.map((share) => h("option", { value: share, text: share === 1 ? "full speed" : percent(share) })));
  const save = button("save", "Checkpoint now", () => order({ do: "checkpoint" }));
  const stop = button("stop", "Stop …", () => ask(true), "danger");
  const sure = button("stop", "Yes, stop the run", () => { ask(false); order({ do: "stop" }); }, "danger");
  const not = button("close", "No", () => ask(false));
  const asked = h("div", { class: "asked", role: "group", "aria-label": "Stop the run?", hidden: true, on: { keydown: (event) => event.key === "Escape" && ask(false) } },
    h("span", { text: "Stop the run? It ends after a checkpoint; `ludus resume` continues from there." }), sure, not);
  const row = h("div", { class: "steer" }, on, pause, h("label", null, h("span", { class: "unseen", text: "Speed" }), speed), save, stop);
  const one = { node: h("div", { class: "steering", role: "group", "aria-label": "Steering" }, row, asked, said), session: null, checkpoints: null, set };

  function ask(open) {
    const inside = asked.contains(document.activeElement);
    asked.hidden = !open;
    row.hidden = open;
    if (open) not.focus();
    else if (inside) stop.focus();
  }

  function set(status, state) {
    one.session = status?.session ?? one.session;
    const kind = state.split(" ")[0];
    one.node.hidden = !AT_WORK.includes(kind);
    const had = document.activeElement;
    on.hidden = kind !== "paused";
    pause.hidden = kind === "paused";
    if (had === on && on.hidden) pause.focus();
    if (had === pause && pause.hidden) on.focus();
    for (const node of [pause, speed, save, stop]) node.disabled = kind === "stopping";
    const pace = status?.pace || Number(/(\d+)%/.exec(state)?.[1] ?? 100) / 100;
    if (status && status.checkpoints > (one.checkpoints ?? status.checkpoints)) write(said, "A checkpoint was written.");
    one.checkpoints = status?.checkpoints ?? one.checkpoints;
    if (kind !== "paused" && document.activeElement !== speed) {
      if (![...speed.options].some((option) => Number(option.value) === pace)) speed.append(h("option", { value: pace, text: percent(pace) }));
      speed.value = String(pace);
    }
  }
  return one;
}
