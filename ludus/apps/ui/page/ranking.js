// The ranking of a population: mean return and rating with their intervals, the ranks that these leave open, and probabilities.

import { h, picker, write } from "./dom.js";
import { table, whole } from "./charts.js";
import { drawnBy, policyLink } from "./links.js";
import { domain, measured, probability, share } from "./measured.js";

const KINDS = {
  sequence: { text: "95% confidence sequence", hint: "valid at any time, also while matches are added" },
  student: { text: "95% interval (Student's t)", hint: "valid at one time that was chosen beforehand; too narrow where all episodes of an opponent ended alike" },
};

// A part of the page Population.
export const RANKING = {
  title: "Ranking", panels: ["ranking", "alpha_rank"], hint: "",
  async load({ get }) {
    const [tables, masses] = await Promise.all([get("ranking"), get("alpha_rank")]);
    return tables.map((one, k) => ({ ...one, rows: one.rows.map((row) => ({ ...row, alpha_rank: masses[k]?.[row.policy] ?? null })) }));
  },
  none: (data) => (data.some(({ rows }) => rows.length) ? "" : "There is no policy to rank yet."),
  make: (place, scene, state) => new Ranking(place, scene, state),
};

class Ranking {
  constructor({ head, body, hint }, { run }, state) {
    this.run = run;
    this.state = state;
    this.hint = hint;
    this.state.kind ??= "sequence";
    this.filter = h("input", { class: "field", type: "search", placeholder: "Filter", "aria-label": "Show only policies whose name holds this", on: { input: () => this.fill() } });
    this.kind = h("select", { class: "field", "aria-label": "Intervals of the mean return", on: { change: () => { this.state.kind = this.kind.value; this.build(); } } });
    this.controls = h("div", { class: "tools" }, this.filter, this.kind);
    head.append(this.controls);
    this.place = h("div");
    body.append(this.place);
  }

  destroy() {
    this.controls.remove();
  }

  set(data) {
    this.data = data;
    this.state.population ??= 0;
    if (data.length > 1 && !this.picker) {
      this.picker = picker("Population", data.map(drawnBy), this.state.population, (k) => { this.state.population = k; this.build(); });
      this.controls.append(this.picker);
    }
    if (this.table) this.fill();
    else this.build();
  }

  get rows() {
    const { rows } = this.data[this.state.population], wanted = this.filter.value.trim().toLowerCase(), { kind } = this.state;
    this.filter.hidden = rows.length < 12;
    const shown = rows.map((row) => ({ ...row, interval: row.intervals[kind], rank: row.ranks[this.rankedBy] }));
    this.scale = { mean: domain(shown, "mean", "interval"), rating: domain(shown, "rating", "rating_half_width") };
    return wanted ? shown.filter(({ policy }) => policy.toLowerCase().includes(wanted)) : shown;
  }

  // Ratings have intervals where winners were counted; elsewhere the mean return ranks.
  get rankedBy() {
    return this.data[this.state.population].rows.some(({ ranks }) => ranks.rating) ? "rating" : this.state.kind;
  }

  explain() {
    const { rows, sequence } = this.data[this.state.population], { kind } = this.state;
    const known = rows.some(({ mean }) => mean !== null);
    const sampled = rows.some(({ intervals }) => intervals.sequence && intervals.sequence[0] < intervals.sequence[1]);
    this.kind.hidden = !sampled;
    const names = Object.entries(KINDS).map(([name, { text }]) => [name, name === "sequence" && !sequence ? "95% interval (normal)" : text]);
    if (!this.kind.options.length) this.kind.append(...names.map(([value, text]) => h("option", { value, text })));
    this.kind.value = kind;
    const what = "Mean return against the last meta-strategy of the other players";
    const how = !known ? "No mean return is known yet: it needs matches against the last meta-strategy of the other players." : !sampled ? `${what}, computed exactly.` : `${what}, with its ${names.find(([name]) => name === kind)[1]}: ${kind === "sequence" && !sequence ? "valid at one time only, as the game has no utility range" : KINDS[kind].hint}.`;
    const rated = this.rankedBy === "rating" ? " The rating is Elo by wins and losses with its 95% interval." : "";
    const ranked = (sampled || rated) && rows.some(({ ranks }) => ranks[this.rankedBy]) ? ` Rank: the places that the intervals of the ${this.rankedBy === "rating" ? "rating" : "mean return"} leave open.` : "";
    write(this.hint, `${how}${rated}${ranked}`);
  }

  build() {
    const { population, rows } = this.data[this.state.population];
    const links = new Map();  // the same nodes again, so that an update leaves the focus where it is
    const link = (policy) => links.get(policy) ?? links.set(policy, policyLink(this.run, population, policy)).get(policy);
    const some = (key) => (all) => all.some((row) => row[key] !== null && row[key] !== undefined), rated = some("rating")(rows);
    const mean = { key: "mean", title: "mean return", only: some("mean"), format: (value, row) => measured(value, row.interval, this.scale.mean) };
    const rating = { key: "rating", title: "rating", only: some("rating"), format: (value, row) => measured(value, row.rating_half_width, this.scale.rating) };
    const columns = [
      { key: "rank", title: "rank", only: some("rank"), hint: "Best and worst rank: a policy is better than another where its interval lies wholly above the other's", value: ({ rank }) => (rank ? -rank[0] - rank[1] / 1e6 : null), format: (_, { rank }) => ranks(rank) },
      { key: "policy", title: "policy", text: true, format: (policy) => link(policy) },
      ...(rated ? [rating, mean] : [mean, rating]),  // the one that sorts first stands where a phone shows it
      { key: "probability", title: "probability", format: probability },
      { key: "alpha_rank", title: "α-Rank", only: some("alpha_rank"), hint: "Share of time that α-Rank's evolution spends at the policy", format: (value) => (value === null ? "–" : share(value)) },
      { key: "games", title: "episodes", only: some("games"), format: (value) => (value ? whole(value) : "–") },
      { key: "generation", title: "generation", format: whole },
      { key: "cluster", title: "cluster", only: (all) => new Set(all.map(({ cluster }) => cluster)).size > 1, hint: "Policies of one cluster have similar payoffs" },
      { key: "start", title: "started from", text: true },
    ];
    this.explain();
    this.table = table(this.place, { columns, rows: this.rows, sort: this.table?.sort ?? { key: rated ? "rating" : "mean", down: true }, limit: 20, label: "Ranking", id: ({ policy }) => policy });
  }

  fill() {
    this.explain();
    this.table.set(this.rows);
  }
}

// "1" where nothing else is possible, else "1–3".
const ranks = (pair) => (!pair ? "–" : pair[0] === pair[1] ? String(pair[0]) : `${pair[0]}–${pair[1]}`);
