// A run at a glance.

import { card, empty, h } from "./dom.js";
import { lines } from "./charts.js";

export async function show(root, { source, params }) {
  const get = (name) => source.get(`runs/${params.run}/${name}`);
  const data = await get("convergence");
  const part = card("NashConv");
  root.append(part.node);
  if (!data.generation.length) return void part.body.append(empty("No generation has finished yet."));
  const place = h("div");
  part.body.append(place);
  const shown = (now) => ({ x: now.generation, xTitle: "generation", yTitle: "NashConv", log: true, whole: true, series: [{ name: "NashConv", values: now.nash_conv }] });
  const chart = lines(place, shown(data));
  return { update: async (panels) => panels.has("convergence") && chart.set(shown(await get("convergence"))), close: chart.destroy };
}
