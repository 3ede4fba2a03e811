// The tree of a small game under one profile: every node with what is known there, how it is reached, what it is worth, and what is regretted.

import { announce, clear, failure, h, write } from "./dom.js";
import { showBoard } from "./boards.js";
import { number } from "./charts.js";
import { probability, share } from "./measured.js";
import { joined, memberField, membersFor, names, playerName } from "./members.js";
import { signed } from "./outcomes.js";

const LARGE = 0.1; // of the largest regret seen: what is worth a mark
const KEYS = new Set(["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End", "Enter", " "]);

/** See app.js. */
export async function show(root, { source, params, query }) {
  const base = `runs/${params.run}`;
  const seats = await source.get(`${base}/seats`).catch(() => null); // a snapshot has none: the profile stays
  const given = names(query.get("seats"));
  const profile = given.length ? given : seats?.players.map(() => "@meta") ?? [];
  const first = await source.get(`${base}/tree`, { seats: joined(profile), node: "" });
  const page = treePage(root, { first, seats, profile: first.seats ?? profile, fetchNode: (now, node) => source.get(`${base}/tree`, { seats: joined(now), node }) });
  await page.open("");
  return {};
}

function treePage(root, { first, seats, profile, fetchNode }) {
  const nodes = new Map(); // id -> { data, item, list, open }
  let now = profile;
  let at = "";
  let largest = 0; // regret
  let turn = 0; // of the newest wish: what an older one still brings selects nothing
  let pressed = Promise.resolve(); // keys, one after the other
  const made = layOut(root);
  const board = showBoard(made.board, { choose: (action) => follow(action) });
  if (seats) made.profile.append(...now.map(seatField));
  made.tree.addEventListener("keydown", onkey);
  made.tree.addEventListener("click", (event) => {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    go(item.dataset.node, event.target.closest(".twist") ? !nodes.get(item.dataset.node).open : undefined);
  });
  begin(first);

  function seatField(name, k) {
    const label = playerName(seats, k);
    const field = memberField({ members: membersFor(seats, k), value: name, label: `Policy of ${label}`, onpick: () => change([...made.profile.querySelectorAll(".member-field")].map((one) => one.value)) });
    return h("label", { class: "profile-seat" }, h("span", { class: `spot p${k % 8}`, "aria-hidden": "true" }), h("span", { text: label }), field);
  }

  // Another profile: the same tree, other numbers; the path that is open stays.
  async function change(profile_now) {
    const before = now;
    now = profile_now;
    write(made.said, "");
    try {
      const path = at;
      begin(await fetchNode(now, ""));
      for (let k = 0, steps = path ? path.split(".") : []; k <= steps.length; k++) await open(steps.slice(0, k).join("."));
      go(path);
    } catch (error) {
      now = before;
      made.said.replaceChildren(failure(error));
    }
  }

  function begin(data) {
    nodes.clear();
    clear(made.tree);
    largest = 0;
    const found = data.exploitability === null || data.exploitability === undefined ? "" : `Exploitability of this profile: ${number(data.exploitability)}. `;
    const values = isDuel(data.value) ? `the value for ${seats ? playerName(seats, 0) : "player 0"}` : "the players’ values";
    write(made.exploitability, `${found}Beside each node: how likely it comes next, and ${values}. Regret is red.`);
    const entry = item({ node: "", label: "The start", kind: data.kind, player: data.player, probability: null, value: data.value, regret: null }, 1);
    made.tree.append(entry.item);
    entry.data = data;
    at = "";
  }

  function item(child, level) {
    const leaf = child.kind === "terminal";
    const list = h("ul", { role: "group", hidden: true });
    const line = h("div", { class: "node-line" }, h("span", { class: "twist", "aria-hidden": "true" }), h("span", { class: `spot small ${spot(child)}`, "aria-hidden": "true" }), h("span", { class: "node-label", text: child.label }),
      child.probability === null ? null : h("span", { class: "node-share", text: share(child.probability) }),
      h("span", { class: "node-value", text: worth(child.value) }));
    if (child.probability !== null) line.style.setProperty("--share", child.probability);
    const node = h("li", { role: "treeitem", tabindex: -1, "aria-level": level, "aria-selected": "false", "aria-expanded": leaf ? null : "false", "aria-label": spoken(child), dataset: { node: child.node } }, line, list);
    const entry = { item: node, list, child, open: false, data: null, line };
    nodes.set(child.node, entry);
    return entry;
  }

  function spot(child) {
    return child.kind === "chance" ? "chance" : child.kind === "terminal" ? "terminal" : `p${child.player % 8}`;
  }

  function spoken(child) {
    const parts = [child.label, child.probability === null ? "" : `probability ${share(child.probability)}`];
    if (child.value) parts.push(`${child.kind === "terminal" ? "pays" : "worth"} ${child.value.map(signed).join(" and ")}`);
    if (child.regret > 0) parts.push(`regret ${number(child.regret)}`);
    return parts.filter(Boolean).join(", ");
  }

  /** Loads a node and shows its children below it. */
  async function open(id) {
    const entry = nodes.get(id);
    if (!entry) return;
    entry.data ??= await fetchNode(now, id);
    if (nodes.get(id) !== entry) return;
    if (!entry.list.childElementCount && entry.data.children.length) {
      const level = Number(entry.item.getAttribute("aria-level")) + 1;
      entry.list.append(...entry.data.children.map((child) => item(child, level).item));
      largest = Math.max(largest, ...entry.data.children.map((child) => child.regret ?? 0));
      paintRegret();
    }
    if (!entry.data.children.length) return;
    entry.open = true;
    entry.list.hidden = false;
    entry.item.setAttribute("aria-expanded", "true");
  }

  function shut(entry) {
    entry.open = false;
    entry.list.hidden = true;
    entry.item.setAttribute("aria-expanded", "false");
  }

  function paintRegret() {
    for (const { child, line } of nodes.values()) {
      const part = largest > 0 ? Math.max(0, child.regret ?? 0) / largest : 0;
      line.classList.toggle("regretted", part >= LARGE);
      line.style.setProperty("--regret", part);
    }
  }

  /** Selects a node, opens it (or shuts it), shows what is known of it. */
  async function go(id, wanted, focus = true) {
    const entry = nodes.get(id), mine = ++turn;
    if (!entry) return;
    try {
      if (wanted === false) shut(entry);
      else await open(id);
      entry.data ??= await fetchNode(now, id);
    } catch (error) {
      made.said.replaceChildren(failure(error));
      return;
    }
    if (nodes.get(id) !== entry || mine !== turn) return;
    clear(made.said);
    select(entry, focus);
  }

  function select(entry, focus) {
    const last = nodes.get(at);
    last?.item.setAttribute("tabindex", -1);
    last?.item.setAttribute("aria-selected", "false");
    at = entry.child.node;
    entry.item.setAttribute("tabindex", 0);
    entry.item.setAttribute("aria-selected", "true");
    if (focus) entry.item.focus({ preventScroll: false });
    detail(entry.data);
  }

  function follow(action) {
    const child = nodes.get(at)?.data?.children.find((one) => one.node === (at === "" ? String(action) : `${at}.${action}`));
    if (child) go(child.node);
  }

  // ------------------------------------------------------------------------------------------------- keys

  function shown() {
    return [...made.tree.querySelectorAll("[role=treeitem]")].filter((one) => !one.parentElement.closest("[role=group][hidden]"));
  }

  function onkey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !KEYS.has(event.key)) return;
    event.preventDefault();
    pressed = pressed.then(() => press(event.key));  // a node may have to be asked for: the next key means what is there then
  }

  function press(key) {
    const entry = nodes.get(at);
    const list = shown();
    const place = list.indexOf(entry?.item);
    const jump = (k) => list[k] && point(list[k].dataset.node);
    const parent = entry?.item.parentElement.closest("[role=treeitem]");
    const acts = {
      ArrowDown: () => jump(place + 1), ArrowUp: () => jump(place - 1), Home: () => jump(0), End: () => jump(list.length - 1),
      ArrowRight: () => (entry.open ? jump(place + 1) : go(at, true)),
      ArrowLeft: () => (entry.open ? go(at, false) : parent && point(parent.dataset.node)),
      Enter: () => go(at, !entry.open), " ": () => go(at, !entry.open),
    };
    return entry && acts[key]();
  }

  // Going past a node shows it without opening it.
  async function point(id) {
    const entry = nodes.get(id), mine = ++turn;
    entry.item.focus();
    try {
      entry.data ??= await fetchNode(now, id);
    } catch (error) {
      return void made.said.replaceChildren(failure(error));
    }
    if (nodes.get(id) === entry && mine === turn) select(entry, true);
  }

  // ------------------------------------------------------------------------------------------------- what is known of a node

  function detail(data) {
    const players = data.value.map((_, k) => (seats ? playerName(seats, k) : `Player ${k}`));
    made.path.replaceChildren(...data.path.map((step, k) => h("li", null, k === data.path.length - 1
      ? h("span", { "aria-current": "true", text: k === 0 ? "The start" : step.label })
      : h("button", { type: "button", text: k === 0 ? "The start" : step.label, on: { click: () => go(step.node) } }))));
    const kinds = { chance: "Chance moves", decision: `${players[data.player]} decides`, terminal: "The game is over" };
    write(made.kind, kinds[data.kind]);
    board.set(data.board, { legal: [], can: false, mine: null, names: players, turn: data.kind === "decision" ? [data.player] : [], weights: null, chosen: null, over: data.kind === "terminal", box: null, keys: null, hold: false, animate: false });
    made.information.hidden = !data.information;
    write(made.information.lastElementChild, data.information ?? "");
    made.reach.replaceChildren(figures(data, players));
    made.actions.replaceChildren(...(data.children.length ? [actions(data, players)] : []));
    announce(kinds[data.kind]);
  }

  function figures(data, players) {
    const labels = [...players, "chance"];
    const all = data.reach.reduce((product, value) => product * value, 1);
    const row = (label, value, shape) => h("tr", null, h("th", { scope: "row", class: "text", text: label }), h("td", { text: share(value) }), h("td", { text: shape }));
    return h("table", { class: "thought-table" }, h("thead", null, h("tr", null, h("td"), h("th", { scope: "col", text: "Reach" }), h("th", { scope: "col", text: "Value" }))),
      h("tbody", null, labels.map((label, k) => row(label, data.reach[k], k < data.value.length ? signed(data.value[k]) : "")), row("joint reach", all, "")));
  }

  function actions(data, players) {
    const decides = data.kind === "decision";
    const most = Math.max(1e-12, ...data.children.map((child) => child.regret ?? 0));
    const head = h("tr", null, h("th", { class: "text", scope: "col", text: decides ? "Action" : "Outcome" }), h("th", { class: "text", scope: "col", text: "Probability" }),
      h("th", { scope: "col", text: decides ? `Value for ${players[data.player]}` : `Value for ${players[0]}` }), decides ? h("th", { scope: "col", text: "Regret" }) : null);
    const rows = data.children.map((child, k) => {
      const regret = decides ? data.regret?.[k] ?? child.regret : null;
      const cell = decides ? h("td", { class: regret > 0 && regret >= LARGE * largest ? "regret" : null, text: regret === null || regret === undefined ? "–" : number(Math.max(0, regret)) }) : null;
      cell?.style.setProperty("--regret", Math.max(0, regret ?? 0) / Math.max(most, largest));
      return h("tr", null, h("th", { class: "text", scope: "row" }, h("button", { type: "button", class: "link", text: child.label, on: { click: () => go(child.node) } })),
        h("td", { class: "text" }, probability(child.probability)), h("td", { text: signed(child.value?.[decides ? data.player : 0]) }), cell);
    });
    return h("table", { class: "thought-table" }, h("thead", null, head), h("tbody", null, rows));
  }

  return { open: async (id) => { await open(id); go(id, true, false); } };
}

/** Where one wins what the other loses, one number says it. */
function worth(value) {
  if (!value) return "";
  return isDuel(value) ? signed(value[0]) : value.map(signed).join(" : ");
}

const isDuel = (value) => value.length === 2 && Math.abs(value[0] + value[1]) < 1e-9;

function layOut(root) {
  const made = {};
  made.profile = h("div", { class: "profile" });
  made.exploitability = h("p", { class: "hint" });
  made.said = h("div");
  made.tree = h("ul", { class: "tree", role: "tree", "aria-label": "The game tree" });
  made.path = h("ol", { class: "crumbs", "aria-label": "The way here" });
  made.kind = h("h2");
  made.board = h("div", { class: "board-place" });
  made.information = h("details", null, h("summary", { text: "Information state" }), h("pre"));
  made.reach = h("div");
  made.actions = h("div");
  root.append(
    h("section", { class: "card", "aria-label": "Profile" }, h("div", { class: "head" }, h("h2", { text: "Game tree" })), made.profile, made.exploitability, made.said),
    h("div", { class: "tree-area" },
      h("section", { class: "card tree-card", "aria-label": "Nodes" }, made.tree),
      h("section", { class: "card", "aria-label": "The node" }, made.path, made.kind, made.board, made.actions, made.reach, made.information)));
  return made;
}
