// All runs: chosen columns, sorted and filtered; an experiment is a row that opens into its runs. Several that are ticked are compared.
// What is chosen stands in the address, so that it can be sent; columns and order are remembered by the browser too.

import { announce, clear, empty, h, icon, picker, write } from "./dom.js";
import { table, whole } from "./charts.js";
import { AT_WORK, COLUMNS, DEFAULT, RESULTS, SETTING, kind, settingColumn, settingNames } from "./runs_columns.js";
import { parse } from "./runs_filter.js";
import { editNotes, tagList } from "./runs_notes.js";

const STATES = [
  ["all", () => true], ["at work", (run) => AT_WORK.includes(kind(run))], ["finished", (run) => run.state === "finished"],
  ["stopped", (run) => ["stopped", "interrupted"].includes(run.state)], ["failed", (run) => run.state === "failed"],
];
const MOST = 64;  // runs that are compared at a time
const NAMED = 3;  // of those that are chosen
const AGAIN = 30_000;  // milliseconds between two times that ages are written anew
const KEPT = "ludus.runs";

export async function show(root, { source, query, go }) {
  const page = new Runs(source, query, go);
  root.append(h("h1", { text: "Runs" }), page.tools, page.card, page.bar);
  await page.load();
  const timer = setInterval(() => page.draw(), AGAIN);
  return { update: () => page.load(), close: () => { clearInterval(timer); page.destroy(); } };
}

class Runs {
  constructor(source, query, go) {
    Object.assign(this, { source, go, ...read(query), chosen: new Set(), runs: [], experiments: new Map(), unreadable: [], settings: null });
    this.filter = parse(this.text, RESULTS);
    [this.boxes, this.titles] = [new Map(), new Map()];  // row -> its tick box, its name: they stay, as the focus may be on them
    this.search = h("input", { class: "field", type: "search", placeholder: "Filter: name, game, tag=…, gamma=0.99 …", "aria-label": "Filter runs", title: "Words, tag=NAME, a setting or result with =, < or >, as gamma=0.99 or nash_conv<0.5; - before a term: not", on: { input: () => this.look(this.search.value) } });
    this.search.value = this.text;
    this.all = h("button", { type: "button", class: "more", on: { click: () => this.chooseAll() } });
    this.hint = h("span", { class: "faint", text: "Tick runs to compare them." });
    this.columnChoice = new ColumnChoice(this);
    this.tools = h("div", { class: "bar-of-tools" }, this.search, picker("State", STATES.map(([name]) => name), this.at, (k) => { this.at = k; this.changed(); }), this.columnChoice.node, h("div", { class: "choosing" }, this.hint, this.all));
    [this.place, this.told, this.lost] = [h("div"), h("div"), h("div")];
    this.card = h("div", { class: "card runs" }, this.place, this.told, this.lost);
    this.names = h("span", { class: "chosen-names" });
    this.compare = h("button", { type: "button", class: "more main", on: { click: () => go(`/compare?runs=${[...this.chosen].join(",")}`) } });
    this.bar = h("div", { class: "chosen-bar", role: "group", "aria-label": "Chosen runs" }, this.names, h("button", { type: "button", class: "more", text: "None", on: { click: () => { this.chosen.clear(); this.draw(); this.search.focus(); } } }), this.compare);
    this.make();
  }

  async load() {
    const { runs, experiments = [], unreadable = [] } = await this.source.get("runs");
    const known = new Set(runs.map((run) => run.id));
    const before = new Set(this.runs.map((run) => run.id)), grew = runs.some((run) => !before.has(run.id));
    Object.assign(this, { runs, unreadable, experiments: new Map(experiments.map((one) => [one.name, one])) });
    for (const id of this.chosen) if (!known.has(id)) this.chosen.delete(id);
    if (this.settings === null ? this.needsSettings() : grew) await this.loadSettings();
    this.draw();
  }

  destroy() {
    this.columnChoice.destroy();
    document.querySelector("dialog.run-notes-dialog")?.close();
  }

  needsSettings() { return this.filter.settings || this.columns.some((key) => key.startsWith(SETTING)) || this.columnChoice.isOpen; }

  async loadSettings() {
    this.settings = await this.source.get("settings");
    this.columnChoice.fill();
  }

  // ---- what is shown

  make() {
    const columns = [this.boxColumn(), this.nameColumn(), ...this.columns.map((key) => (key.startsWith(SETTING) ? settingColumn(key, (run) => this.settings?.[run.id]) : COLUMNS.find((one) => one.key === key))).filter(Boolean)];
    this.grid = table(this.place, { label: "Runs", rows: [], limit: 100, sort: this.sort, id: (row) => row.id, columns, under: (row) => (row.members && this.open.has(row.name) ? row.members : []), onsort: (sort) => { this.sort = sort; this.remember(); } });
  }

  shown() {
    const [, fits] = STATES[this.at];
    return this.runs.filter((run) => fits(run) && this.filter.test(run, this.settings?.[run.id]));
  }

  // Runs, and experiments in the place of theirs.
  rows(runs) {
    const groups = new Map();
    for (const run of runs) {
      const name = this.experiments.has(run.group) ? run.group : null;
      groups.set(name, [...(groups.get(name) ?? []), run]);
    }
    const alone = groups.get(null) ?? [];
    groups.delete(null);
    return [...alone, ...[...groups].map(([name, members]) => ({ id: `experiment ${name}`, name, members, experiment: this.experiments.get(name) }))];
  }

  draw() {
    const runs = this.shown();
    this.tools.hidden = !this.runs.length;
    this.place.hidden = !runs.length;
    this.grid.set(this.rows(runs));
    this.all.hidden = runs.length < 2 || (this.at === 0 && this.filter.empty);
    write(this.all, `Choose these ${whole(Math.min(MOST, runs.length))}`);
    const why = this.runs.length ? "No run is like that." : "No runs yet. `ludus train leduc` starts one; it appears here by itself.";
    clear(this.told).append(...(runs.length || (!this.runs.length && this.unreadable.length) ? [] : [empty(why)]));
    clear(this.lost).append(...(this.unreadable.length ? [unreadable(this.unreadable)] : []));
    this.tellChosen();
  }

  look(text) {
    this.text = text;
    this.filter = parse(text, RESULTS);
    if (this.filter.settings && !this.settings) this.loadSettings().then(() => this.draw());
    this.changed();
  }

  changed() {
    this.remember();
    this.draw();
  }

  showColumns(columns) {
    this.columns = columns;
    this.make();
    this.changed();
  }

  remember() {
    keep({ columns: this.columns, sort: this.sort });
    history.replaceState(history.state, "", `#/${address(this)}`);
  }

  // ---- choosing

  choose(ids, on) {
    for (const id of ids) {
      if (on) this.chosen.add(id);
      else this.chosen.delete(id);
    }
    this.draw();
    announce(`${this.chosen.size} ${this.chosen.size === 1 ? "run is" : "runs are"} chosen.`);
  }

  chooseAll() { this.choose(this.shown().slice(0, MOST).map((run) => run.id), true); }

  tellChosen() {
    const n = this.chosen.size, names = this.runs.filter((run) => this.chosen.has(run.id)).map((run) => run.name);
    this.hint.hidden = n > 0;
    this.bar.hidden = n === 0;
    this.compare.disabled = n > MOST;
    write(this.compare, n === 1 ? "Show its seeds and curves" : `Compare ${n} runs`);
    write(this.names, n > MOST ? `${n} runs are chosen; at most ${MOST} are compared.` : `${n} chosen: ${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ", …" : ""}`);
  }

  // ---- cells

  boxColumn() {
    const format = (_, row) => {
      const ids = row.members ? row.members.map((run) => run.id) : [row.id];
      if (!this.boxes.has(row.id)) this.boxes.set(row.id, h("input", { type: "checkbox", "aria-label": `Choose ${row.name}` }));
      const box = this.boxes.get(row.id), n = ids.filter((id) => this.chosen.has(id)).length;
      box.onchange = () => this.choose(ids, box.checked);
      box.checked = n === ids.length;
      box.indeterminate = n > 0 && n < ids.length;
      return box;
    };
    return { key: "chosen", title: "chosen", unseen: true, sorts: false, format };
  }

  nameColumn() {
    const format = (_, row) => {
      const tags = row.members ? [...new Set(row.members.flatMap((run) => run.tags))] : row.tags, key = JSON.stringify([row.name, tags]);
      if (this.titles.get(row.id)?.key !== key) this.titles.set(row.id, { key, ...(row.members ? this.experiment(row, tags) : this.run(row)) });
      const { node, twist } = this.titles.get(row.id), open = this.open.has(row.name);
      twist?.setAttribute("aria-expanded", String(open));
      twist?.setAttribute("title", open ? "Hide its runs" : "Show its runs");
      return node;
    };
    return { key: "name", title: "run", text: true, value: (row) => row.name, format };
  }

  experiment({ name }, tags) {
    const flip = () => {
      if (!this.open.delete(name)) this.open.add(name);
      this.changed();
    };
    const twist = h("button", { type: "button", class: "twist", "aria-label": `Runs of ${name}`, on: { click: flip } });
    return { twist, node: h("span", { class: "run-name" }, twist, h("a", { href: `#/experiment/${encodeURIComponent(name)}`, text: name }), this.tags(tags)) };
  }

  run(run) {
    const edit = this.source.may.steer && h("button", { type: "button", class: "edit", title: "Edit tags and notes", "aria-label": `Edit tags and notes of ${run.name}`, on: { click: () => this.edit(run.id) } }, icon("edit"));
    return { node: h("span", { class: this.experiments.has(run.group) ? "run-name inside" : "run-name" }, h("a", { href: `#/run/${run.id}`, text: run.name }), edit, this.tags(run.tags)) };
  }

  tags(tags) {
    const press = (tag) => {
      this.search.value = /\s/.test(tag) ? `tag="${tag}"` : `tag=${tag}`;
      this.look(this.search.value);
      this.search.focus();
    };
    return tags.length ? h("span", { class: "tags" }, tagList(tags, press)) : null;
  }

  edit(id) {
    const run = this.runs.find((one) => one.id === id);
    const saved = (kept) => {
      Object.assign(this.runs.find((one) => one.id === id) ?? {}, kept, { notes_problem: "" });
      this.draw();
    };
    editNotes({ source: this.source, run, known: [...new Set(this.runs.flatMap((one) => one.tags))].sort(), saved });
  }
}

const unreadable = (runs) => h("ul", { class: "notes", "aria-label": "Runs that cannot be read" }, runs.map((run) => h("li", { class: "error" }, h("span", { text: `${run.name} cannot be read` }), h("span", { class: "faint", text: run.why }))));

// ------------------------------------------------------------------------------------------------------------ the choice of columns

class ColumnChoice {
  constructor(page) {
    this.page = page;
    this.settings = h("div");
    this.search = h("input", { class: "field", type: "search", placeholder: "Filter settings", "aria-label": "Filter settings", on: { input: () => this.fill() } });
    this.results = h("div", { class: "column-list", role: "group", "aria-label": "Columns" });
    const usual = h("button", { type: "button", class: "more", text: "Usual columns", on: { click: () => { page.showColumns([...DEFAULT]); this.fill(); } } });
    this.node = h("details", { class: "columns-choice", on: { toggle: () => this.opened(), keydown: (event) => event.key === "Escape" && this.close() } },
      h("summary", { class: "more", text: "Columns" }), h("div", { class: "columns-panel card" }, this.results, h("h2", { text: "Settings" }), this.search, this.settings, usual));
    this.pointed = (event) => { if (!this.node.contains(event.target)) this.node.open = false; };
    document.addEventListener("pointerdown", this.pointed);
  }

  destroy() { document.removeEventListener("pointerdown", this.pointed); }

  get isOpen() { return this.node.open; }

  close() {
    this.node.open = false;
    this.node.querySelector("summary").focus();
  }

  opened() {
    if (!this.isOpen) return;
    this.fill();
    if (!this.page.settings) this.page.loadSettings();
  }

  fill() {
    const { page } = this, wanted = this.search.value.toLowerCase();
    clear(this.results).append(...COLUMNS.map(({ key, title, hint }) => this.box(key, title, hint)));
    if (!page.settings) return void clear(this.settings).append(h("p", { class: "faint", text: "Loading …" }));
    const { differ, same } = settingNames(page.runs, (run) => page.settings[run.id]);
    const part = (title, names) => {
      const listed = names.filter((name) => name.toLowerCase().includes(wanted));
      return listed.length ? [h("p", { class: "faint", text: title }), h("div", { class: "column-list", role: "group", "aria-label": title }, listed.map((name) => this.box(SETTING + name, name)))] : [];
    };
    return clear(this.settings).append(...part("That differ", differ), ...part("The same in all runs", same));
  }

  box(key, title, hint = "") {
    const flip = (event) => {
      const columns = this.page.columns.filter((one) => one !== key);
      this.page.showColumns(event.target.checked ? ordered([...columns, key]) : columns);
    };
    return h("label", { title: hint || null }, h("input", { type: "checkbox", checked: this.page.columns.includes(key), on: { change: flip } }), h("span", { text: title }));
  }
}

// Those of runs in their usual order, then those of settings as they were chosen.
function ordered(keys) {
  return [...COLUMNS.map(({ key }) => key).filter((key) => keys.includes(key)), ...keys.filter((key) => key.startsWith(SETTING))];
}

// ------------------------------------------------------------------------------------------------------------ what is remembered

const NEWEST = { key: "began", down: false };

// What the address says, else what the browser remembers, else the usual.
function read(query) {
  const kept = recalled(), asked = query.get("columns"), order = query.get("sort");
  const known = (keys) => keys.filter((key) => key.startsWith(SETTING) || COLUMNS.some((one) => one.key === key));
  return {
    text: query.get("filter") ?? "",
    at: Math.max(0, STATES.findIndex(([name]) => name === query.get("state"))),
    columns: known(asked !== null ? asked.split(",") : kept.columns ?? DEFAULT),
    sort: order ? { key: order.replace(/^-/, ""), down: order.startsWith("-") } : kept.sort ?? NEWEST,
    open: new Set((query.get("open") ?? "").split(",").filter(Boolean).map(decodeURIComponent)),
  };
}

function address({ text, at, columns, sort, open }) {
  const query = new URLSearchParams();
  if (text) query.set("filter", text);
  if (at) query.set("state", STATES[at][0]);
  if (columns.join() !== DEFAULT.join()) query.set("columns", columns.join());
  if (sort && (sort.key !== NEWEST.key || sort.down)) query.set("sort", `${sort.down ? "-" : ""}${sort.key}`);
  if (open.size) query.set("open", [...open].map(encodeURIComponent).join());
  const said = query.toString();
  return said ? `?${said}` : "";
}

function recalled() {
  try {
    const { columns, sort } = JSON.parse(localStorage.getItem(KEPT)) ?? {};
    return { columns: Array.isArray(columns) ? columns.map(String) : null, sort: typeof sort?.key === "string" ? { key: sort.key, down: Boolean(sort.down) } : null };
  } catch {
    return {};
  }
}

function keep(view) {
  try { localStorage.setItem(KEPT, JSON.stringify(view)); } catch { /* it may be forbidden: then the address alone has it */ }
}
