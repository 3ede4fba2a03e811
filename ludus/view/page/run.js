// The frame of a run's pages: its header, its steering and its tabs.

import { h, write } from "./dom.js";

const TABS = [
  { name: "overview", title: "Overview", path: "" },
  { name: "population", title: "Population", path: "/population" },
  { name: "learning", title: "Learning", path: "/learning" },
  { name: "log", title: "Log", path: "/log" },
  { name: "play", title: "Play", path: "/play", can: "play" },
  { name: "tree", title: "Game tree", path: "/tree", can: "tree" },
];

export function frame(root, { source, run, overview, go }) {
  const name = overview.info.name;
  const state = h("span", { class: `pill ${overview.state}`, text: overview.state });
  const tabs = TABS.filter(({ can }) => !can || (source.live && overview.can[can] && (can !== "play" || source.may.play)));
  const links = new Map(tabs.map((tab) => [tab.name, h("a", { href: `#/run/${run}${tab.path}`, text: tab.title })]));
  const body = h("div");
  root.append(
    h("header", { class: "run" }, h("div", null, h("h1", { text: name }), h("p", { class: "lead", text: `${overview.info.scenario} on ${overview.info.env}.` })), state),
    h("nav", { class: "tabs", "aria-label": "Pages of the run" }, [...links.values()]),
    body,
  );
  return {
    run, name, body, go,
    titleOf: (tab) => TABS.find((one) => one.name === tab)?.title,
    select(tab) {
      for (const [key, link] of links) {
        if (key === tab) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
    async update(panels) {
      if (!panels.has("overview")) return;
      const next = await source.get(`runs/${run}/overview`);
      state.className = `pill ${next.state}`;
      write(state, next.state);
    },
    close() {},
  };
}
