// All runs.

import { empty, h } from "./dom.js";
import { table } from "./charts.js";

export async function show(root, { source }) {
  const { runs } = await source.get("runs");
  root.append(h("h1", { text: "Runs" }));
  if (!runs.length) return void root.append(empty("No runs yet. `ludus train` starts one."));
  const place = h("div", { class: "card" });
  root.append(place);
  const grid = table(place, {
    label: "Runs", rows: runs, id: (row) => row.id,
    columns: [{ key: "name", title: "name", text: true, format: (name, row) => h("a", { href: `#/run/${row.id}`, text: name }) }, { key: "state", title: "state", text: true }],
  });
  return { update: async () => grid.set((await source.get("runs")).runs) };
}
