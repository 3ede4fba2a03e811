// A run on paper: while the browser prints, the pages of all tabs stand one after the other, drawn anew in the paper's width and colours.
//
// Between the browser's word that it prints and the printing itself no answer of a server comes. A snapshot has everything at hand. Of a
// served page Ctrl+P asks for what is missing first; the browser's menu prints the tabs that were seen.

import { h } from "./dom.js";
import { SourceError } from "./source.js";

const TABS = [
  { tab: "overview", title: "Overview", path: "run/:run", load: () => import("./overview.js") },
  { tab: "population", title: "Population", path: "run/:run/population", load: () => import("./population.js") },
  { tab: "learning", title: "Learning", path: "run/:run/learning", load: () => import("./learning.js") },
  { tab: "log", title: "Log", path: "run/:run/log", load: () => import("./log.js") },
];

const MOST = 32;  // answers of a tab that are remembered

// body: of the run's frame, in which the pages stand. Returns { source(path, page) -> what a page of that address is to ask, so that it can be
// printed, loaded: a promise, stop() }.
export function paper({ source, run, body }) {
  const modules = new Map(), told = new Map();  // tab -> its module; tab -> Map of address -> data
  let root = null, pages = [], asking = false;

  const load = () => Promise.all(TABS.map(async (one) => { if (!modules.has(one.tab)) modules.set(one.tab, await one.load()); }));
  const show = (tab, node, from) => modules.get(tab).show(node, { source: from, params: { run }, query: new URLSearchParams(), go() {} });

  // Asks for all that the tabs show and has not been told yet.
  async function gather() {
    await load();
    for (const { tab } of TABS) {
      if (told.has(tab)) continue;
      const answers = new Map(), node = h("div", { hidden: true });
      body.append(node);
      try {
        (await show(tab, node, { ...watched(answers), whole: true }))?.close?.();
        told.set(tab, answers);
      } finally {
        node.remove();
      }
    }
  }

  function watched(answers) {
    return { ...source, get: (name, params) => source.get(name, params).then((data) => keep(answers, addressOf(name, params), data)) };
  }

  function remembered(tab) {
    const get = async (name, params) => {
      const address = addressOf(name, params);
      if (told.get(tab)?.has(address)) return told.get(tab).get(address);
      if (!source.live) return source.get(name, params);
      throw new SourceError("this was not asked for before the page was printed.", 404);
    };
    return { ...source, get, live: false, whole: true, may: { watch: true, steer: false, play: false } };
  }

  // Only what is done before the browser goes on is printed, so nothing here waits for more than what is at hand. The paper's width and
  // colours hold from here on: the browser's own come later.
  async function print() {
    document.documentElement.dataset.paper = "";
    root = h("div", { class: "paper" });
    body.append(root);
    body.classList.add("printed");
    for (const { tab, title } of TABS) {
      if (!modules.has(tab) || (source.live && !told.has(tab))) continue;
      const node = h("div");
      root.append(h("section", { class: "sheet" }, h("h2", { class: "sheet-title", text: title }), node));
      pages.push(await show(tab, node, remembered(tab)));
    }
  }

  function clean() {
    for (const page of pages) page?.close?.();
    pages = [];
    root?.remove();
    root = null;
    body.classList.remove("printed");
    delete document.documentElement.dataset.paper;
  }

  async function key(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "p" || !source.live) return;
    event.preventDefault();
    if (asking) return;  // the key is held
    asking = true;
    try {
      await gather();
    } finally {
      asking = false;
    }
    window.print();
  }

  window.addEventListener("beforeprint", print);
  window.addEventListener("afterprint", clean);
  window.addEventListener("keydown", key);
  return {
    source(path, page) {
      const found = TABS.find((one) => one.path === path);
      if (!found) return source;
      const answers = new Map();
      modules.set(found.tab, page);
      told.set(found.tab, answers);
      return watched(answers);
    },
    loaded: source.live ? undefined : load(),  // of a served page, what has been seen is loaded
    stop() {
      window.removeEventListener("beforeprint", print);
      window.removeEventListener("afterprint", clean);
      window.removeEventListener("keydown", key);
      clean();
    },
  };
}

// The first answers are what a page begins with; what it asks for later, such as older events, is not printed.
function keep(answers, address, data) {
  if (answers.size < MOST || answers.has(address)) answers.set(address, data);
  return data;
}

function addressOf(name, params = {}) {
  return `${name}?${new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([key, value]) => [key, String(value)]).sort())}`;
}
