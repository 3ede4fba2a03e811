"use strict";
// The charts: pure functions from data and the present colours to Plotly figures.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const playerColour = (player) => css(`--p${player % 4}`);

function show(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 10 ** -(digits - 1)) return value.toExponential(1).replace("-", "−");
  return value.toFixed(digits).replace("-", "−");
}

function layout(extra) {
  const axis = {
    gridcolor: css("--grid"), zerolinecolor: css("--line"), linecolor: css("--line"), tickcolor: css("--line"),
    tickfont: { color: css("--soft"), size: 12 }, title: { font: { color: css("--soft"), size: 13 }, standoff: 10 },
    automargin: true, ticks: "outside", ticklen: 4,
  };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 52, r: 12, t: 12, b: 44 },
    font: { family: getComputedStyle(document.body).fontFamily, color: css("--ink"), size: 13 },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 13 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12, color: css("--soft") } },
    xaxis: structuredClone(axis), yaxis: structuredClone(axis), dragmode: false,
  };
  for (const [key, value] of Object.entries(extra)) {
    if (key === "xaxis" || key === "yaxis") {
      const title = value.title ? { title: { ...axis.title, text: value.title } } : {};
      Object.assign(base[key], value, title);
    } else base[key] = value;
  }
  return base;
}

function draw(element, traces, extra) {
  return Plotly.react(element, traces, layout(extra), { responsive: true, displayModeBar: false, scrollZoom: false });
}

// 1, 2 and 5 times powers of ten (powers alone over many decades): Plotly's own choice crowds.
function logTicks(series) {
  const values = series.flat().filter((v) => v !== null && v > 0);
  if (!values.length) return {};
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.ceil(Math.log10(Math.max(...values)));
  const ticks = [];
  for (let k = low; k <= high; k++) for (const m of high - low > 3 ? [1] : [1, 2, 5]) ticks.push(Number(`${m}e${k}`));
  return { tickvals: ticks, ticktext: ticks.map((v) => (v < 1e-3 || v >= 1e5 ? v.toExponential(0) : String(v))) };
}

// Between few generations Plotly would put ticks at halves.
const wholeTicks = (generation) => (generation[generation.length - 1] - generation[0] < 6 ? { dtick: 1 } : {});

function drawConvergence(element, data, x, title, logarithmic) {
  const positive = (values) => (logarithmic ? values.map((v) => (v !== null && v > 0 ? v : null)) : values);
  const few = data.generation.length < 3;
  const traces = data.gains.map((gain, player) => ({
    x, y: positive(gain), name: `gain of player ${player}`, type: "scatter", mode: few ? "lines+markers" : "lines",
    line: { color: playerColour(player + 1), width: 1.25 }, opacity: 0.75, hovertemplate: "%{y:.4g}",
  }));
  traces.push({
    x, y: positive(data.nash_conv), name: data.exact ? "NashConv" : "NashConv, at least", type: "scatter",
    mode: few ? "lines+markers" : "lines", line: { color: css("--accent"), width: 2.5 }, hovertemplate: "<b>%{y:.4g}</b>",
  });
  return draw(element, traces, {
    xaxis: { title, rangemode: "tozero", ...(x === data.generation ? wholeTicks(x) : {}) },
    yaxis: { type: logarithmic ? "log" : "linear", rangemode: "tozero", ...(logarithmic ? logTicks([data.nash_conv, ...data.gains]) : {}) },
    hovermode: "x unified", showlegend: true,
  });
}

const learnerColour = (k, of) => (of <= 4 ? playerColour(k) : ramp(k / (of - 1)));

// One line per learner. banded: with their standard deviations around them.
function drawLearning(element, learners, over, title, pick, banded) {
  const traces = learners.flatMap((learner, k) => {
    const x = learner.over[over], y = pick(learner) ?? [];
    const few = y.filter((v) => v !== null).length < 3;
    const colour = learnerColour(k, learners.length);
    const edge = (sign) => ({
      x, y: y.map((v, i) => (v === null ? null : v + sign * (learner.spread[i] ?? 0))), type: "scatter", mode: "lines", line: { width: 0 },
      hoverinfo: "skip", connectgaps: true, ...(sign > 0 ? { fill: "tonexty", fillcolor: `${colour}22` } : {}),
    });
    const line = {
      x, y, name: learner.learner, type: "scatter", mode: few ? "lines+markers" : "lines", line: { color: colour, width: 1.75 },
      connectgaps: true, hovertemplate: "%{y:.4g}",
    };
    return banded ? [edge(-1), edge(1), line] : [line];
  });
  return draw(element, traces, {
    xaxis: { title: over, rangemode: "tozero" }, yaxis: { title }, hovermode: learners.length > 4 ? "closest" : "x unified", showlegend: false,
  });
}

const RAMP = [[38, 52, 92], [47, 102, 144], [66, 150, 148], [139, 184, 120], [226, 196, 104], [226, 138, 76], [189, 74, 44]];

function ramp(place) {
  const at = place * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  const mix = RAMP[low].map((c, k) => Math.round(c + (at - low) * (RAMP[low + 1][k] - c)));
  return `rgb(${mix.join(",")})`;
}

function drawStrategy(element, strategy) {
  const single = strategy.generation.length === 1;
  const traces = strategy.layers.map((layer) => {
    const colour = ramp(layer.place);
    const common = { x: strategy.generation, y: layer.values, name: layer.label, hovertemplate: `${layer.label}: %{y:.3f}<extra>generation %{x}</extra>` };
    if (single) return { ...common, type: "bar", width: 0.5, marker: { color: colour, line: { color: css("--card"), width: 1 } } };
    return { ...common, type: "scatter", mode: "lines", stackgroup: "one", line: { width: strategy.generation.length > 60 ? 0 : 0.6, color: css("--card") }, fillcolor: colour, hoveron: "points" };
  });
  const end = strategy.generation[strategy.generation.length - 1];
  return draw(element, traces, {
    barmode: "stack", showlegend: false, hovermode: "closest", margin: { l: 52, r: 12, t: 30, b: 44 },
    xaxis: single ? { title: "generation", tickvals: strategy.generation, showgrid: false, range: [end - 1, end + 1] } : { title: "generation", range: [strategy.generation[0], end], showgrid: false, ...wholeTicks(strategy.generation) },
    yaxis: { range: [0, 1], tickformat: ".0%", showgrid: false, nticks: 5 },
    title: { text: `player ${strategy.player}`, x: 0, xref: "container", xanchor: "left", y: 0.98, font: { size: 13, color: css("--soft") } },
  });
}

function drawPayoffs(element, map) {
  const values = map.values.flat().filter((v) => v !== null);
  const bound = Math.max(1e-12, ...values.map(Math.abs));
  const label = (names) => names.map((_, k) => k);
  // As many labels as there is room for: below the columns they stand side by side.
  const longest = Math.max(1, ...map.columns.map((name) => name.length));  // a letter is about 7 pixels wide
  const room = { wide: Math.max(2, Math.min(12, Math.floor((element.clientWidth - 150) / Math.max(50, 7 * longest + 14)))), high: 12 };
  const every = (names, most) => Math.max(1, Math.ceil(names.length / most));
  const ticks = (names, most) => ({ tickvals: names.map((_, k) => k).filter((k) => k % every(names, most) === 0), ticktext: names.filter((_, k) => k % every(names, most) === 0) });
  return draw(element, [{
    type: "heatmap", z: map.values, x: label(map.columns), y: label(map.rows), zmin: -bound, zmax: bound, hoverongaps: false,
    xgap: map.columns.length < 40 ? 1 : 0, ygap: map.rows.length < 40 ? 1 : 0,
    customdata: map.rows.map((row) => map.columns.map((column) => [row, column])),
    hovertemplate: `player ${map.row_player}: %{customdata[0]}<br>player ${map.column_player}: %{customdata[1]}<br><b>%{z:.4f}</b><extra></extra>`,
    colorscale: [[0, css("--p1")], [0.5, css("--middle")], [1, css("--p0")]],
    colorbar: { thickness: 10, outlinewidth: 0, len: 0.9, tickfont: { color: css("--soft"), size: 12 }, ticks: "" },
  }], {
    xaxis: { title: `policies of player ${map.column_player}`, showgrid: false, zeroline: false, tickangle: 0, constrain: "domain", ...ticks(map.columns, room.wide) },
    yaxis: { title: `policies of player ${map.row_player}`, showgrid: false, zeroline: false, autorange: "reversed", ...ticks(map.rows, room.high) },
    margin: { l: 60, r: 8, t: 8, b: 52 },
  });
}
