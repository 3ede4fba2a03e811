// Entries of zoos below the folder of runs: policies that were published, to be played against.

import { empty, h } from "./dom.js";

/** See app.js. */
export async function show(root, { source }) {
  const entries = await source.get("zoo");
  root.append(h("header", { class: "page-head" }, h("h1", { text: "Zoo" }), h("p", { class: "lead", text: "Published policies in the folder of runs. They can be played against and watched." })));
  if (!entries.length) root.append(empty("No entries here. `ludus pull ZOO/NAME` copies one into the folder of runs; `ludus play NAME` opens one from anywhere."));
  else root.append(h("ul", { class: "card zoo-list" }, entries.map((entry) => h("li", null, h("a", { href: `#/run/${entry.id}/play`, text: entry.name })))));
  return {};
}
