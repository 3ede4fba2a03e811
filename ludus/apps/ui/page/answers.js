// The first screen of a run: does it improve, what happens now, who beats whom, what is played, where it cycles. A run without opponents has
// the first two.

import { card, clear, h, icon, sentence, svg, time, write } from "./dom.js";
import { lines, number, percent, span, whole } from "./charts.js";
import { beats, beatsScale } from "./beats.js";
import { policyLink, refill } from "./links.js";
import { doing, episodes, speed, tails } from "./live.js";
import { interval, share } from "./measured.js";

const GRADES = { "improves": "good", "nothing is left to gain": "good", "no measurable change": "even", "gets worse": "poor" };
const HIGH = 136, LOW = 96;  // pixels of the chart, and where a table stands below it

// Parts for cards(): each has a panel, a node and set(data).
export function answers({ run, source }) {
  const node = h("div", { class: "five" });
  const improves = doesItImprove(), now = whatHappensNow({ run, source }), who = whoBeatsWhom(run), mixture = whatIsPlayed(run), cycles = whereItCycles();
  node.append(improves.node, now.node, who.node, mixture.node, cycles.node);
  return [
    {
      panel: "answers", node,
      set(data) {
        improves.set(data.improvement);
        now.recent(data.recent);
        who.set(data.table);
        mixture.set(data.mixtures, data.generation);
        cycles.set(data.cycle);
      },
      close() { improves.close(); now.close(); },
    },
    { panel: "overview", node: now.node, set: now.set },
  ];
}

// ------------------------------------------------------------------------------------------------------------ does it improve

// "0.895", "94% (90% to 97%)", "481 ± 12"
export function estimate({ value, low, high }, measure) {
  if (value === null) return "";
  if (measure === "win rate") return low === null ? percent(value) : `${percent(value)} (${percent(low)} to ${percent(high)})`;
  return low === null ? number(value) : low === high ? `${number(value)} ± 0` : interval(value, (high - low) / 2);
}

export function doesItImprove() {
  const { node, body } = card("Does it improve?");
  node.classList.add("improves");
  const verdict = h("p", { class: "verdict" }), value = h("p", { class: "now-value" }), place = h("div"), against = h("div");
  body.append(verdict, value, place, against);
  let chart = null;
  const close = () => { chart?.destroy(); chart = null; };

  function draw({ measure, opponent, against: others, x, x_title: xTitle, values, low, high, frame }) {
    if (x.length < 2) {
      close();
      return void clear(place);
    }
    const log = measure.startsWith("NashConv") && values.every((v) => v === null || v > 0);
    const banded = low.length > 0;
    const shown = {
      x, xTitle, yTitle: measure, height: others.length ? LOW : HIGH, note: opponent ? `Against ${opponent}.` : undefined, frame: frame ?? undefined, log, whole: xTitle === "generation", bare: Boolean(opponent), format: measure === "win rate" ? (v) => percent(v) : undefined,
      yRange: measure === "win rate" ? [0, 1] : undefined,
      series: [{ name: measure, values, ...(banded ? { low, high } : {}) }],
    };
    if (chart) chart.set(shown);
    else chart = lines(place, shown);
  }

  return {
    node, close,
    set(answer) {
      const [said, ...why] = answer.sentence.split(": "), [first, ...more] = said.replace(/\.$/, "").split("; ");
      refill(verdict, answer.sentence, () => [h("strong", { class: GRADES[answer.verdict] ?? "", text: first }), more.length ? ` ${sentence(more.join("; "))}` : "", why.length ? ` ${sentence(why.join(": "))}` : ""]);
      const text = estimate(answer.now, answer.measure), listed = answer.par !== null && answer.against.length > 0;  // the table below has it
      value.hidden = listed ? answer.x.length < 2 : !text;
      refill(value, [text, answer.of, answer.measure, listed], () => (listed
        ? [`${sentence(answer.measure).slice(0, -1)} of each generation against ${answer.opponent}${answer.measure === "payoff" ? ", above what that earns itself" : ""}`]
        : [h("span", { class: "label", text: `${answer.measure} ` }), h("b", { text }), h("span", { class: "under", text: ` ${answer.of}` })]));
      draw(answer);
      against.hidden = !answer.against.length;
      refill(against, answer.against, () => [opponents(answer)]);
    },
  };
}

// "generation 6 wins 69% | against random play | 65% to 73% of 400 games"
function opponents({ against, measure, who: own }) {
  const rate = measure === "win rate";
  const text = (value) => (rate ? `${own} wins ${percent(value)}` : measure === "payoff" ? `${own} earns ${number(value)} more` : `earns ${number(value)}`);
  return h("table", { class: "opponents" },
    h("caption", { class: "unseen", text: "Against earlier strategies" }),
    h("tbody", null, against.map(({ who, estimate: { value, low, high }, games }) => h("tr", null,
      h("th", { scope: "row", class: "text", text: measure === "return" ? who : `against ${who}` }),
      h("td", { class: "text" }, rate ? h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: percent(value, 1) } })) : null, text(value)),
      h("td", { class: "faint", text: low === null ? "" : rate ? `${percent(low)} to ${percent(high)}` : `${number(low)} to ${number(high)}` }),
      h("td", { class: "faint", text: games ? `${whole(games)} games` : "computed" })))));
}

// ------------------------------------------------------------------------------------------------------------ what happens now

const AT_WORK = ["running", "paused", "stopping"];

function whatHappensNow({ run, source }) {
  const { node, body } = card("What happens now?");
  node.classList.add("happens");
  const said = h("p", { class: "verdict" }), bar = h("div", { class: "progress", "aria-hidden": "true" }, h("i")), facts = h("dl"), trace = h("div", { class: "trace" }), noted = h("p", { class: "noted" }), usage = h("p", { class: "hint" });
  body.append(said, bar, facts, usage, trace, noted);
  let overview = null, status = null, recent = null, timer = null, heard = 0, trained = 0;

  function draw() {
    if (!overview) return;
    const state = status?.state ?? overview.state, kind = state.split(" ")[0], busy = AT_WORK.includes(kind);
    const progress = overview.progress, point = status?.points?.find(({ over }) => !over) ?? status?.points?.[0];
    const fraction = status?.fraction ?? null, elapsed = heard ? (performance.now() - heard) / 1000 : 0;
    bar.hidden = !busy || fraction === null;
    if (!bar.hidden) bar.firstChild.style.width = percent(fraction, 1);
    const task = status ? doing(status, elapsed) : progress.doing;
    refill(said, [state, task, overview.end, progress.seconds], () => (busy ? going(kind, task) : ended(overview)));
    trained = Math.max(trained, overview.figures.episodes, status ? episodes(status) : 0);
    const left = status?.seconds_left ?? progress.seconds_left, rate = overview.figures.steps_per_second;
    const entries = [
      ...(progress.generations === 0 ? [] : [["generation", `${whole(status?.generation ?? progress.generation)}${progress.generations === null ? "" : ` of ${whole(progress.generations)}`}`]]),
      ["policies", overview.figures.policies.map(whole).join(" + ")],
      ...(progress.generations === 0 ? [] : [["episodes of training", whole(trained)]]),
      ...(busy && left !== null && left !== undefined ? [["time left", span(Math.max(0, left - elapsed))]] : []),
      ...(!busy && rate !== null ? [["steps/s", whole(rate)]] : []),
    ];
    refill(facts, entries, () => entries.map(([term, text]) => h("div", null, h("dt", { text: term }), h("dd", { text }))));
    write(usage, busy && status ? speed(status) : "");
    drawTrace(point);
    const { warnings, errors } = overview.figures, last = overview.notes[overview.notes.length - 1];
    noted.hidden = !warnings && !errors;
    refill(noted, [warnings, errors, last?.text], () => (noted.hidden ? [] : [h("a", { class: errors ? "bad" : "warned", href: `#/run/${run}/log` }, icon("warning"), ` ${counted(errors, "error")}${errors && warnings ? ", " : ""}${counted(warnings, "warning")}`), last ? ` ${last.text}` : ""]));
  }

  function drawTrace(point) {
    const live = point ? tails(run, [])[point.learner]?.mean ?? [] : [], same = !point || point.policy === recent?.policy;
    const values = same ? [...(recent?.returns ?? []), ...live.slice(-1)] : live;
    const known = values.filter((v) => v !== null), policy = point?.policy ?? recent?.policy;
    trace.hidden = known.length < 2;
    refill(trace, [known, policy], () => (known.length < 2 ? [] : [h("span", { class: "label", text: `Return while ${policy} trained` }), sparkline(known), h("b", { text: number(known[known.length - 1], 3) })]));
  }

  const stop = source.onstatus(run, (next) => {
    status = next;
    heard = performance.now();
    draw();
  });
  if (source.live) timer = setInterval(() => status && draw(), 1000);  // the time left counts down
  return {
    node,
    set(data) {
      overview = data;
      if (!AT_WORK.includes(data.state.split(" ")[0])) status = null;
      draw();
    },
    recent(data) { recent = data; draw(); },
    close() { stop(); clearInterval(timer); },
  };
}

const counted = (n, word) => (n ? `${whole(n)} ${word}${n > 1 ? "s" : ""}` : "");

function going(kind, task) {
  const word = { paused: "Paused", stopping: "Stopping" }[kind] ?? "Running";
  return [h("strong", { class: kind === "running" ? "good" : "even", text: word }), task ? ` ${sentence(task)}` : ""];
}

// "Finished 2026-11-30 04:10:02 after 18 s: the schedule is complete."
function ended({ state, end, progress }) {
  const grade = { finished: "good", failed: "poor", interrupted: "poor" }[state] ?? "even";
  const word = state[0].toUpperCase() + state.slice(1);
  return [h("strong", { class: grade, text: word }), " ", end.time === null ? "" : time(end.time), ` after ${span(progress.seconds)}${end.cause ? `: ${sentence(end.cause)}` : "."}`];
}

const WIDE = 180, TALL = 32;

function sparkline(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const at = (v, k) => `${((WIDE - 4) * k) / (values.length - 1) + 2} ${high > low ? TALL - 3 - ((TALL - 6) * (v - low)) / (high - low) : TALL / 2}`;
  return svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDE} ${TALL}`, width: WIDE, height: TALL, role: "img", "aria-label": `from ${number(values[0], 3)} to ${number(values[values.length - 1], 3)}` }, svg("polyline", { points: values.map(at).join(" ") }));
}

// ------------------------------------------------------------------------------------------------------------ who beats whom

function whoBeatsWhom(run) {
  const { node, head, hint, body } = card("Who beats whom?"), many = h("span", { class: "many" });
  head.append(many);
  node.classList.add("who-beats");
  return {
    node,
    set(table) {
      node.hidden = !table;
      if (!table) return;
      const { rows, columns, rate, others } = table;
      const same = rows.population === columns.population;
      const [row, column] = same ? ["the row", "the column"] : [`player ${rows.player} (row)`, `player ${columns.player} (column)`];
      write(hint, `${rate ? `Games that ${row} wins (a draw is half)` : `What ${row} earns`} against ${column}.${others ? ` ${others}` : ""}`);
      write(many, howMany(rows, columns, same));
      refill(body, table, () => [beats(run, table), beatsScale(table)].flat().filter(Boolean));
    },
  };
}

// "the 12 most played of 65 policies", "all 9 and 8 policies, the most played first"
function howMany(rows, columns, same) {
  const sides = same ? [rows] : [rows, columns], alike = rows.count === columns.count, each = alike && !same ? " of each player" : "";
  const told = (of) => (alike ? of(rows) : sides.map(of).join(" and "));
  const all = sides.every(({ policies, count }) => policies.length === count);
  return all ? `all ${told(({ count }) => whole(count))} policies${each}, the most played first` : `the ${told(({ policies, count }) => `${policies.length} most played of ${whole(count)}`)} policies${each}`;
}

// ------------------------------------------------------------------------------------------------------------ what is played

function whatIsPlayed(run) {
  const { node, hint, body } = card("What is the mixture?");
  node.classList.add("mixed");
  const item = (mixed, policy, k) => h("li", null,
    h("span", { class: "share-name", title: policy }, mixed.joint ? policy : policyLink(run, mixed.population, policy)),
    h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: percent(mixed.probability[k], 1) } })),
    h("span", { class: "share-text", text: share(mixed.probability[k]) }));
  const listed = (mixed, many) => [
    many || mixed.joint ? h("h3", null, mixed.joint ? "Together" : [h("span", { class: `spot small p${mixed.players[0] % 8}`, "aria-hidden": "true" }), `Player ${mixed.players[0]}`]) : null,
    h("ol", { class: `shares ${mixed.players.length > 1 ? "" : `p${mixed.players[0] % 8}`}` }, mixed.policies.map((policy, k) => item(mixed, policy, k)), mixed.count > mixed.policies.length && h("li", { class: "faint", text: `${whole(mixed.count - mixed.policies.length)} more: ${share(mixed.rest)}` })),
  ];
  return {
    node,
    set(mixtures, generation) {
      node.hidden = !mixtures.length;
      if (!mixtures.length) return;
      const most = mixtures.length > 1 ? Math.max(2, Math.floor(10 / mixtures.length)) : 8;
      const shorter = mixtures.map((mixed) => shortened(mixed, most));
      write(hint, `Meta-strategy of generation ${generation}${mixtures.length === 1 && !mixtures[0].joint && mixtures[0].players.length > 1 ? ", of every player" : ""}.`);
      refill(body, shorter, () => shorter.flatMap((mixed) => listed(mixed, shorter.length > 1)).filter(Boolean));
    },
  };
}

// With at most so many policies.
function shortened(mixed, most) {
  const rest = mixed.probability.slice(most).reduce((sum, value) => sum + value, mixed.rest);
  return { ...mixed, policies: mixed.policies.slice(0, most), probability: mixed.probability.slice(0, most), rest };
}

// ------------------------------------------------------------------------------------------------------------ where it cycles

function whereItCycles() {
  const { node, body } = card("Where does it cycle?");
  node.classList.add("cycles");
  const said = h("p", { class: "verdict" }), why = h("p", { class: "hint" });
  body.append(said, why);
  return {
    node,
    set(cycle) {
      node.hidden = !cycle;
      if (!cycle) return;
      refill(said, cycle.sentence, () => cycle.sentence.split(" ").flatMap((word) => [h("span", { class: "whole", text: word }), " "]));
      write(why, cycle.meaning);
    },
  };
}
