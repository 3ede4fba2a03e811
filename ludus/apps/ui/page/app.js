// The frame: which page is shown for an address, and what every page may rely on.
//
// A page is a module with   async function show(root, { source, params, query, go }) -> { update(panels), close() }   (both optional)
//   root    an empty element to fill          params  the names in the address: run, population, policy, table, replay, tournament
//   source  see source.js                     query   URLSearchParams after the "?" of the address
//   go(to)  opens another address             update  called at most twice a second with the Set of panels that changed, never while
//                                                     an earlier call is under way or the page is hidden; close when the page is left
// One that exports alone = true is told of no changes, and listens for what it needs itself.
// Pages of a run stand in the run's frame (run.js): its header, its steering and its tabs stay while the pages below change.

import { announce, clear, empty, failure, h, write } from "./dom.js";
import { paper } from "./paper.js";
import { SourceError, source } from "./source.js";

const BETWEEN = 500;  // milliseconds between two updates

const ROUTES = [
  { path: "", title: "Runs", load: () => import("./runs.js") },
  { path: "compare", title: "Comparison", load: () => import("./compare.js") },
  { path: "experiment/:experiment", title: "Experiment", load: () => import("./experiment.js") },
  { path: "people", title: "People", load: () => import("./people.js") },
  { path: "tournaments", title: "Tournaments", load: () => import("./tournaments.js") },
  { path: "tournament/:tournament", title: "Tournament", load: () => import("./tournaments.js") },
  { path: "zoo", title: "Zoo", load: () => import("./zoo.js") },
  { path: "replay", title: "Replay", load: () => import("./replay.js") },
  { path: "table/:table", title: "Table", load: () => import("./table.js") },
  { path: "run/:run", tab: "overview", load: () => import("./overview.js") },
  { path: "run/:run/population", tab: "population", load: () => import("./population.js") },
  { path: "run/:run/policy/:population/:policy", tab: "population", title: "Policy", load: () => import("./policy.js") },
  { path: "run/:run/learning", tab: "learning", load: () => import("./learning.js") },
  { path: "run/:run/log", tab: "log", load: () => import("./log.js") },
  { path: "run/:run/play", tab: "play", load: () => import("./play.js") },
  { path: "run/:run/tree", tab: "tree", load: () => import("./tree.js") },
  { path: "run/:run/show", tab: "play", title: "A game", load: () => import("./replay.js") },
  { path: "run/:run/episodes", tab: "play", title: "Episodes", load: () => import("./episodes.js") },
  { path: "run/:run/replay/:replay", tab: "play", title: "Replay", load: () => import("./replay.js") },
];

// "run/ab/policy/0/0-3?x=1" -> { route, params, query }, or null where no page has this address.
export function match(address) {
  const [path, text = ""] = address.replace(/^#?\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  for (const route of ROUTES) {
    const names = route.path.split("/").filter(Boolean);
    if (names.length !== parts.length) continue;
    if (!names.every((name, k) => name.startsWith(":") || name === parts[k])) continue;
    const params = Object.fromEntries(names.flatMap((name, k) => (name.startsWith(":") ? [[name.slice(1), parts[k]]] : [])));
    return { route, params, query: new URLSearchParams(text) };
  }
  return null;
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function go(to) {
  location.hash = to.startsWith("#") ? to : `#${to}`;
}

const main = document.getElementById("main");
let turn = 0;  // of the newest address: what an older one still brings is dropped
let frame = null;  // { run, body, select, update, close } of the run that is shown
let shown = null;  // { close } of the page that is shown
let entry = null, entries = 0;  // of the browser's history; who goes back finds the page where it was left
const scrolls = new Map();
const REMEMBERED = 50;

function arrive() {
  if (entry !== null) scrolls.set(entry, window.scrollY);
  if (scrolls.size > REMEMBERED) scrolls.delete(scrolls.keys().next().value);
  const known = history.state?.entry;
  entry = known ?? `${performance.timeOrigin}-${entries++}`;
  if (known === undefined) history.replaceState({ entry }, "");
  return scrolls.get(entry) ?? 0;
}

async function route() {
  const mine = ++turn, first = entry === null, top = arrive();
  const found = match(source.snapshot && !location.hash.replace(/^#\/?/, "") ? source.snapshot.home : location.hash);
  shown?.close();
  shown = null;
  if (!found) return missing();
  const coming = found.route.load().catch(unknown);  // while the run's frame is made
  coming.catch(() => {});  // told below, if this address is still wanted then
  try {
    const body = await place(found, mine);
    if (mine !== turn) return;
    const page = await coming;
    if (mine !== turn) return;
    if (!page) {
      clear(body).append(empty("This is a snapshot, and that page is not in it: open the run with `ludus ui` to see it."));
      document.documentElement.dataset.ready = "yes";
      return;
    }
    const root = h("div");  // a page's own: what one that was left still brings goes nowhere
    clear(body).append(root);
    await start(page, root, found, mine);
    document.title = [found.route.title ?? frame?.titleOf(found.route.tab), frame?.name, source.snapshot ? source.snapshot.title : "Ludus"].filter(Boolean).join(" · ");
    mark(found);
    window.scrollTo(0, top);
    if (first) return;
    announce(document.title);
    if (document.activeElement === document.body) main.focus({ preventScroll: true });  // what was followed is gone with its page
  } catch (error) {
    if (mine === turn) fail(error, { inside: Boolean(frame) });
  }
}

function unknown(error) {
  if (source.live) throw error;
  return null;  // a snapshot has the modules that make sense without a server
}

// Where the page goes: below the header of its run, or on its own.
async function place({ route: { tab }, params }, mine) {
  if (!tab || isEntry(params.run)) {
    leave();
    return fresh();
  }
  if (frame?.run !== params.run) {
    leave();
    const root = fresh();
    root.append(loading());
    const [{ frame: makeFrame }, overview] = await Promise.all([import("./run.js"), source.get(`runs/${params.run}/overview`)]);
    if (mine !== turn) return root;
    frame = makeFrame(clear(root), { source, run: params.run, overview, go });
    if (source.live && overview.info.experiment) root.prepend(h("p", { class: "kicker" }, h("a", { href: `#/experiment/${encodeURIComponent(overview.info.experiment)}`, text: `Experiment ${overview.info.experiment}` })));
    frame.follower = follow(params.run, (panels) => frame?.update(panels));
    frame.paper = paper({ source, run: params.run, body: frame.body });
    await frame.paper.loaded;
  }
  frame.select(tab);
  return frame.body;
}

const isEntry = (run) => Boolean(run?.startsWith("zoo-"));  // of a zoo: no run, it has no frame and does not change

function fresh() {
  const root = h("div", { class: "page" });
  clear(main).append(root);
  return root;
}

function leave() {
  frame?.follower.stop();
  frame?.paper.stop();
  frame?.close();
  frame = null;
}

const loading = () => h("p", { class: "loading", text: "Loading …" });

// Listens before the page asks for its data, so that no change falls between the two.
async function start(page, root, { route: { tab, path }, params, query }, mine) {
  const wait = setTimeout(() => root.childElementCount || root.append(loading()), 200);
  let running = {};
  const follower = page.alone || isEntry(params.run) ? { stop() {}, release() {} } : follow(params.run ?? "", (panels) => running.update?.(panels), { held: true });
  try {
    running = (await page.show(root, { source: frame ? frame.paper.source(path, page) : source, params, query, go })) ?? {};
  } catch (error) {
    follower.stop();
    throw error;
  } finally {
    clearTimeout(wait);
    root.querySelector(":scope > .loading")?.remove();
  }
  const close = () => { follower.stop(); running.close?.(); };
  if (mine !== turn) return close();
  shown = { close };
  follower.release();
  document.documentElement.dataset.ready = "yes";
}

// Calls f with what has changed: gathered, one call at a time, never while nobody looks. held: not before release().
function follow(run, f, { held = false } = {}) {
  let gathered = new Set(), timer = null, busy = held, ended = false, last = 0;
  const later = () => {
    if (ended || busy || timer !== null || !gathered.size || document.hidden) return;
    timer = setTimeout(now, Math.max(0, last + BETWEEN - performance.now()));
  };
  const now = async () => {
    timer = null;
    busy = true;
    const panels = gathered;
    gathered = new Set();
    last = performance.now();
    try {
      await f(panels);
    } catch (error) {
      if (error.status !== 0 && !ended) fail(error);  // a lost server has its banner, and everything is asked for again when it is back
    } finally {
      busy = false;
      later();
    }
  };
  const stop = source.onchange(run, (panels) => {
    if (panels.has("gone")) return void fail(new SourceError("this run is gone: its directory was moved or deleted.", 410));
    for (const panel of panels) gathered.add(panel);
    later();
  });
  document.addEventListener("visibilitychange", later);
  return {
    release() { busy = false; later(); },
    stop() {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", later);
      stop();
    },
  };
}

// inside: only the page failed, and its run's frame stays.
function fail(error, { inside = false } = {}) {
  shown?.close();
  shown = null;
  if (!inside) leave();
  document.title = "Error · Ludus";  // not the page's before
  const again = [401, 404, 410].includes(error.status) ? null : route;
  const root = inside ? clear(frame.body) : fresh();
  root.append(inside ? "" : h("h1", { class: "unseen", text: "Error" }), failure(error, again), source.live && !inside ? h("p", { class: "links" }, h("a", { href: "#/", text: "All runs" })) : "");
  document.documentElement.dataset.ready = "failed";
  if (![Error, SourceError].includes(error.constructor)) console.error(error);  // a mistake of ours
}

function missing() {
  leave();
  document.title = "Not found · Ludus";
  fresh().append(h("h1", { class: "unseen", text: "Not found" }), empty("There is no page with this address.", h("a", { href: "#/", text: source.live ? "All runs" : "To the start" })));
  document.documentElement.dataset.ready = "yes";
}

function mark({ route: { path } }) {
  for (const link of document.querySelectorAll("#top nav a")) {
    const here = link.dataset.path === path.replace(/^tournament\/.*/, "tournaments");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function top() {
  const links = [h("a", { href: "#/", text: "Runs", dataset: { path: "" } }), h("a", { href: "#/tournaments", text: "Tournaments", dataset: { path: "tournaments" } })];
  if (source.may.play) links.push(h("a", { href: "#/zoo", text: "Zoo", dataset: { path: "zoo" } }), h("a", { href: "#/people", text: "People", dataset: { path: "people" } }));
  const brand = source.live ? h("a", { class: "brand", href: "#/", text: "Ludus" }) : h("span", { class: "brand", text: "Ludus" });
  document.getElementById("top").replaceChildren(brand, source.live ? h("nav", { "aria-label": "Main" }, links) : h("span", { class: "kicker", text: source.snapshot.kicker }));
}

function banner() {
  const place = document.getElementById("banner");
  source.onlink(({ lost, text }) => {
    write(place, lost ? text : "");
    if (!lost) announce("The server is back.");
  });
}

async function begin() {
  const found = match(location.hash);  // it comes while we ask who we are; if it does not, `route` says so
  found?.route.load().catch(() => {});
  if (source.live && found?.route.tab && !isEntry(found.params.run)) source.get(`runs/${found.params.run}/overview`).catch(() => {});
  try {
    await source.start();
  } catch (error) {
    return fail(error.status === 401 ? new SourceError("this page needs the address with the token that `ludus ui` printed. Open that address.", 401) : error);
  }
  top();
  banner();
  history.scrollRestoration = "manual";
  window.addEventListener("hashchange", route);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  await route();
}

begin();
