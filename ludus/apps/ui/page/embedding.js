// A map of policies by their payoffs: strength and circles at one look.

import { announce, h, picker, write } from "./dom.js";
import { number, percent } from "./charts.js";
import { colour, colours, ramp } from "./colours.js";
import { drawnBy, policyLink } from "./links.js";
import { share } from "./measured.js";
import { shortNames } from "./names.js";
import { font, nameThem, nearest, neighbour, scaleKey, spread, stage } from "./stage.js";

const HEIGHT = 540;
const BY = ["age", "strength", "cluster"];

export function embedding(place, scene, state) {
  return new Embedding(place, scene, state);
}

class Embedding {
  constructor({ head, body, hint }, { run }, state) {
    this.run = run;
    this.state = state;
    this.hint = hint;
    this.chosen = null;
    state.population ??= 0;
    state.by ??= BY[0];
    this.controls = h("div", { class: "tools" }, picker("Colour", BY.map((name) => `by ${name}`), BY.indexOf(state.by), (k) => { state.by = BY[k]; this.layout(); this.stage.draw(); }));
    head.append(this.controls);
    this.told = h("p", { class: "unseen", id: "embedding-told" });
    this.legend = h("div", { class: "key" });
    this.about = h("p", { class: "chosen" });
    body.append(this.told);
    this.places = [];
    this.theme();
    this.stage = stage(body, {
      label: "Map of policies. Arrow keys go from one to the next, Enter chooses; plus, minus and 0 zoom.", describedby: "embedding-told", legend: this.legend, centred: true,
      height: (width) => Math.min(HEIGHT, Math.max(260, 0.8 * width)),
      world: () => this.stage?.size ?? { width: 1, height: 1 },
      closest: () => 30,
      paint: (context, on) => this.paint(context, on),
      hover: (point) => this.point(point && nearest(this.places, point.screenX, point.screenY)),
      pick: (point) => this.choose(nearest(this.places, point.screenX, point.screenY)),
      key: (event) => this.key(event),
      theme: () => this.theme(),
    });
    body.append(this.about);
  }

  destroy() {
    this.stage.destroy();
    this.controls.remove();
  }

  set(data) {
    this.data = data;
    if (data.length > 1 && !this.picker) {
      this.picker = picker("Population", data.map(drawnBy), this.state.population, (k) => {
        this.state.population = k;
        this.chosen = this.pointed = null;
        this.layout();
        this.stage.fit();
      });
      this.controls.append(this.picker);
    }
    this.layout();
    this.stage.resize();
  }

  theme() {
    this.colours = colours("ink", "soft", "line", "card", "accent");
    if (this.data) this.layout();
  }

  // In the order in which they are drawn: the likeliest last, above all others.
  layout() {
    const { points, method, explained, population } = this.data[this.state.population];
    const told = explained.every((part) => part !== null) ? ` The two axes explain ${explained.map((part) => percent(part)).join(" and ")} of the variance of the payoffs.` : "";
    write(this.hint, `${method}${told} Larger dots are likelier in the meta-strategy.`);
    const strongest = [...points].sort((a, b) => (b.strength ?? -Infinity) - (a.strength ?? -Infinity)).slice(0, 3).map(({ policy }) => policy);
    write(this.told, `A map of ${points.length} policies. The strongest are ${strongest.join(", ")}. ${method}`);
    const last = Math.max(1, ...points.map(({ generation }) => generation)), clusters = 1 + Math.max(0, ...points.map(({ cluster }) => cluster ?? 0));
    this.population = population;
    const strengths = points.map(({ strength }) => strength ?? 0), least = Math.min(...strengths), span = Math.max(...strengths) - least || 1;
    const paint = {
      age: ({ generation }) => ramp(generation / last), cluster: ({ cluster }) => colour(cluster ?? 0, clusters), strength: ({ strength }) => ramp(((strength ?? 0) - least) / span),
    }[this.state.by];
    this.explainColours(clusters);
    const base = points.length > 200 ? 2.6 : 3.6;
    const short = shortNames(points.map(({ policy }) => policy));
    this.places = points.map((point, k) => ({ ...point, name: short[k], radius: base + 15 * Math.sqrt(point.probability), at: [0, 0], colour: paint(point) })).sort((a, b) => a.probability - b.probability);
    this.laid = null;
  }

  explainColours(clusters) {
    const scale = (from, to) => [scaleKey(from, "age-scale", to)];
    const each = Array.from({ length: Math.min(clusters, 8) }, (_, k) => h("span", { class: "key-item" }, h("i", { style: { background: colour(k, clusters) } }), `cluster ${k}`));
    this.legend.replaceChildren(...{ age: scale("oldest", "newest"), strength: scale("weakest", "strongest"), cluster: each }[this.state.by]);
  }

  lay({ width, height }) {
    if (this.laid === `${width} ${height}`) return;
    this.laid = `${width} ${height}`;
    spread(this.places, width, height, 34).forEach((at, k) => { this.places[k].home = at; });
  }

  point(place) {
    const policy = place?.policy ?? null;
    if (policy === this.pointed) return;
    this.pointed = policy;
    if (place) this.stage.tip(...place.at, this.lines(place).map((text, k) => h("p", null, k ? text : h("b", { text }))));
    else this.stage.tip(null);
    this.stage.draw();
  }

  lines({ policy, generation, strength, probability, cluster }) {
    return [policy, `generation ${generation}${cluster === null ? "" : `, cluster ${cluster}`}`, `strength ${number(strength, 3)}`, `probability ${share(probability)}`];
  }

  choose(place) {
    this.chosen = place?.policy ?? null;
    this.about.replaceChildren(...(place ? [policyLink(this.run, this.population, place.policy), `: ${this.lines(place).slice(1).join(", ")}.`] : []));
    this.stage.draw();
  }

  key(event) {
    const from = this.places.find(({ policy }) => policy === this.pointed) ?? null;
    if (event.key === "Enter" && from) this.choose(from);
    else if (event.key === "Escape") this.point(null);
    else if (event.key.startsWith("Arrow") && this.places.length) {
      const next = from ? neighbour(this.places, from, event.key) : this.places[this.places.length - 1];
      if (next) {
        this.point(next);
        announce(this.lines(next).join(", "));
      }
    } else return false;
    return true;
  }

  paint(context, on) {
    const { width, height } = on.size;
    this.lay(on.size);
    for (const place of this.places) place.at = on.toScreen(...place.home);
    this.crosshair(context, on);
    for (const { at: [x, y], radius, colour: fill } of this.places) {
      if (x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.globalAlpha = 0.82;
      context.fillStyle = fill;
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = this.colours.card;
      context.stroke();
    }
    this.ring(context, this.chosen, this.colours.accent);
    this.ring(context, this.pointed, this.colours.ink);
    context.font = font(12);
    const first = this.places.filter(({ policy }) => policy === this.pointed || policy === this.chosen);
    nameThem(context, [...first, ...this.places.toReversed()], { width, height, most: 28 + 8 * on.view.scale, colour: this.colours.ink, halo: this.colours.card, dots: this.places });
  }

  // Through the middle of the world: left and right, up and down of the average.
  crosshair(context, on) {
    const { width, height } = on.size, [x, y] = on.toScreen(width / 2, height / 2);
    context.strokeStyle = this.colours.line;
    context.setLineDash([3, 4]);
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
    context.setLineDash([]);
    const [across, up] = this.data[this.state.population].axes;
    context.font = font(12, 600);
    context.fillStyle = this.colours.soft;
    context.textBaseline = "alphabetic";
    context.textAlign = "right";
    context.fillText(across, width - 6, Math.min(Math.max(y - 6, 14), height - 6));
    context.textAlign = "left";
    context.fillText(up, Math.min(Math.max(x + 6, 6), width - 120), 14);
  }

  ring(context, policy, stroke) {
    const place = policy === null ? null : this.places.find((one) => one.policy === policy);
    if (!place) return;
    context.beginPath();
    context.arc(...place.at, place.radius + 2, 0, 2 * Math.PI);
    context.lineWidth = 2;
    context.strokeStyle = stroke;
    context.stroke();
  }
}
