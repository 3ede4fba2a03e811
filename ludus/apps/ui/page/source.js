// Where the page's data comes from: a server, or the file itself (a snapshot).
//
//   get ──► server: GET /api/NAME          snapshot: the JSON in the page
//   onchange, onstatus ◄── server: one stream of events, opened anew after every loss      snapshot: nothing ever changes

import { record } from "./live.js";

const holder = document.getElementById("data");
const snapshot = holder ? JSON.parse(holder.textContent) : null;

// What an event "changed" may name; a page that was away is told of all of them.
const PANELS = [
  "overview", "answers", "convergence", "strategies", "learning", "throughput", "parts", "events", "ranking", "payoffs", "lineage", "responses",
  "embedding", "diversity", "statistics", "policy", "replays", "tree",
];
const FIRST_WAIT = 1000, LONGEST_WAIT = 8000;  // milliseconds between tries

export class SourceError extends Error {
  // status: HTTP's, or 0 where the server does not answer.
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const flying = new Map();  // address -> promise: who asks for the same at the same time waits for one answer
const listeners = { change: new Map(), status: new Map() };  // run ("" for the list) -> functions
const statuses = new Map();  // run -> its last LiveStatus, while anybody listens
const onlink = new Set();
let stream = null, streamed = null, wait = FIRST_WAIT, timer = null, lost = false, away = false;

export const source = {
  live: snapshot === null,
  may: { watch: true, steer: false, play: false },
  version: snapshot?.version ?? "",
  snapshot,

  // Asks who we are. Raises SourceError.
  async start() {
    if (snapshot) return;
    const session = await source.get("session");
    source.may = session.may;
    source.version = session.version;
  },

  // get("runs"), get("runs/ID/payoffs", { of: 1, order: "age" }) -> JSON. What is null or "" in params is left out. Raises SourceError.
  get(name, params = {}) {
    if (snapshot) return embedded(name, params);
    const address = named(name, params);
    if (!flying.has(address)) flying.set(address, ask(address).finally(() => flying.delete(address)));
    return flying.get(address);
  },

  post: (path, body) => ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Ludus": "1" } }),
  remove: (path) => ask(path, { method: "DELETE", headers: { "Content-Type": "application/json", "X-Ludus": "1" } }),

  // f(panels: Set of names) whenever something of a run has changed; run "": the list of runs. "gone" is among them when the run was
  // deleted. After a loss of the server f is told of everything. Returns what ends it.
  onchange: (run, f) => listen(listeners.change, run, f),

  // f(LiveStatus | null) whenever the run's state or progress is told, and at once where it is known. Returns what ends it.
  onstatus(run, f) {
    if (statuses.has(run)) queueMicrotask(() => listeners.status.get(run)?.has(f) && f(statuses.get(run)));
    return listen(listeners.status, run, f);
  },

  // f({ lost: bool, text }) when the server stops answering, and when it is back. Returns what ends it.
  onlink(f) {
    onlink.add(f);
    return () => onlink.delete(f);
  },

  unpack,
};

const given = (params) => Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([key, value]) => [key, String(value)]).sort(([a], [b]) => (a < b ? -1 : 1));

function named(name, params) {
  const text = new URLSearchParams(given(params)).toString();
  return text ? `${name}?${text}` : name;
}

// In a snapshot a panel's name has its query as plain text: "policy?policy=0-3&population=0".
async function embedded(name, params) {
  const query = given(params).map((pair) => pair.join("=")).join("&");
  const key = `${name.replace(/^runs\/[^/]+\//, "")}${query ? `?${query}` : ""}`;
  if (!Object.hasOwn(snapshot.panels, key)) throw new SourceError("this is a snapshot, and that is not in it: open the run with `ludus ui` to see it.", 404);
  return snapshot.panels[key];
}

const TRIES = 4;

async function ask(address, options = {}) {
  let answer;
  for (let tries = 1; ; tries += 1) {
    try {
      answer = await fetch(`api/${address}`, { cache: "no-cache", credentials: "same-origin", ...options });
    } catch {
      dropped();
      throw new SourceError("the server does not answer.", 0);
    }
    if (answer.status !== 429 || options.method || tries === TRIES) break;  // many look at once: what only reads waits its turn
    await new Promise((done) => setTimeout(done, 1000 * (Number(answer.headers.get("retry-after")) || 1)));
  }
  const text = await answer.text();
  let data = null;
  try { data = text ? JSON.parse(text) : null; } catch { /* not ours: said below */ }
  if (!answer.ok) throw new SourceError(data?.error ?? `the server answered ${answer.status}.`, answer.status);
  return data;
}

const KINDS = { f4: Float32Array, u4: Uint32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };

// Of a Packed matrix, { data: TypedArray, shape }.
function unpack({ dtype, shape, data, values, places }) {
  const open = (text, kind) => new KINDS[kind]((Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : decoded(atob(text))).buffer);
  if (!places) return { data: open(data, dtype), shape };
  const place = open(data, places), value = open(values, dtype);
  const all = new KINDS[dtype](place.length);
  for (let k = 0; k < place.length; k++) all[k] = value[place[k]];
  return { data: all, shape };
}

function decoded(letters) {
  const bytes = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k++) bytes[k] = letters.charCodeAt(k);
  return bytes;
}

// ------------------------------------------------------------------------------------------------------------ the stream

function listen(map, run, f) {
  if (!map.has(run)) map.set(run, new Set());
  map.get(run).add(f);
  soon();
  return () => {
    map.get(run)?.delete(f);
    if (map.get(run)?.size === 0) map.delete(run);
    if (!listeners.status.has(run)) {
      statuses.delete(run);
      record(run, null);
    }
    soon();
  };
}

// A page that goes and one that comes ask in one turn: one stream serves both.
function soon() {
  if (!source.live || lost) return;  // when it is lost, `again` opens it
  clearTimeout(timer);
  timer = setTimeout(open, 0);
}

// A browser keeps six connections to a server: a tab that nobody looks at gives its one back.
document.addEventListener("visibilitychange", () => {
  if (!source.live) return;
  if (document.hidden) {
    clearTimeout(timer);
    stream?.close();
    stream = null;
    away = true;
  } else if (lost) again();
  else soon();
});

function wanted() {
  return [...new Set([...listeners.change.keys(), ...listeners.status.keys()])].filter(Boolean).sort().join(",");
}

const listening = () => listeners.change.size + listeners.status.size > 0;

function open() {
  if (document.hidden) return;
  if (!listening()) {
    stream?.close();
    stream = null;
    return;
  }
  const runs = wanted();
  if (stream && streamed === runs && stream.readyState !== EventSource.CLOSED) return;
  stream?.close();
  streamed = runs;
  stream = new EventSource(`api/live?runs=${encodeURIComponent(runs)}`);
  stream.addEventListener("open", opened);
  stream.addEventListener("error", dropped);
  stream.addEventListener("bye", dropped);
  stream.addEventListener("runs", () => tell(listeners.change, "", new Set(["runs"])));
  stream.addEventListener("changed", (event) => { const { run, panels } = JSON.parse(event.data); tell(listeners.change, run, new Set(panels)); });
  stream.addEventListener("status", (event) => { const { run, status } = JSON.parse(event.data); statuses.set(run, status); record(run, status); tell(listeners.status, run, status); });
  stream.addEventListener("gone", (event) => tell(listeners.change, JSON.parse(event.data).run, new Set(["gone"])));
}

function tell(map, run, what) {
  for (const f of map.get(run) ?? []) f(what);
}

function opened() {
  wait = FIRST_WAIT;
  if (!lost && !away) return;
  if (lost) {
    lost = false;
    for (const f of onlink) f({ lost, text: "" });
  }
  away = false;
  for (const run of listeners.change.keys()) tell(listeners.change, run, new Set(run ? PANELS : ["runs"]));
}

// EventSource tries again by itself after some losses only, and never says why: so one way for all.
function dropped() {
  if (!source.live) return;
  stream?.close();
  if (!lost) {
    lost = true;
    for (const f of onlink) f({ lost, text: "The server does not answer. Trying again …" });
  }
  clearTimeout(timer);
  timer = setTimeout(again, wait);
  wait = Math.min(LONGEST_WAIT, wait * 1.6);
}

async function again() {
  try {
    const answer = await fetch("api/session", { cache: "no-store" });
    if (answer.status === 401) for (const f of onlink) f({ lost, text: "The server was started anew and does not know this page: open the address that it printed." });
    else if (!listening()) opened();
  } catch {
    if (!listening()) return dropped();
  }
  open();
}
