// A chart as a file: its picture, or its numbers.

import { h } from "./dom.js";

const MARGIN = 12, LINE = 20;  // pixels of a picture

// A file name of some words.
const named = (words, suffix) => `${words.filter(Boolean).join("-").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "chart"}.${suffix}`;

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

// Numbers as they are, a row for each place along x, a column for each series; empty where a series has no value there.
// lines: [{ name, x, values, low?, high? }].
export function csv(xTitle, lines) {
  const columns = lines.flatMap((line) => [[line.name, line.values], ...(line.low ? [[`${line.name} low`, line.low], [`${line.name} high`, line.high]] : [])].map(([name, values]) => ({ name, at: new Map(line.x.map((x, k) => [x, values[k]])) })));
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const rows = places.map((x) => [String(x), ...columns.map(({ at }) => String(at.get(x) ?? ""))]);
  return `${[[xTitle, ...columns.map(({ name }) => name)], ...rows].map((row) => row.map(quoted).join(",")).join("\n")}\n`;
}

export const saveCsv = (words, xTitle, lines) => save(new Blob([csv(xTitle, lines)], { type: "text/csv" }), named(words, "csv"));

// words: the title; canvas: what is drawn; legend: [{ name, colour }]; ink, paper: colours.
export function savePng(words, canvas, legend, { ink, paper, font }) {
  const scale = devicePixelRatio || 1, picture = h("canvas"), pen = picture.getContext("2d");
  const shown = legend.length > 1 ? legend : [], rows = [[]];
  pen.font = font;
  let wide = 0;
  for (const entry of shown) {
    const size = pen.measureText(entry.name).width + 34;
    if (wide && wide + size > canvas.width / scale) [wide, rows[rows.length]] = [0, []];
    rows[rows.length - 1].push({ ...entry, at: wide });
    wide += size;
  }
  const top = MARGIN + LINE * (1 + (shown.length ? rows.length : 0));
  picture.width = canvas.width + 2 * MARGIN * scale;
  picture.height = canvas.height + (top + MARGIN) * scale;
  pen.fillStyle = paper;
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(canvas, MARGIN * scale, top * scale);
  pen.scale(scale, scale);
  pen.fillStyle = ink;
  pen.font = `bold ${font}`;
  pen.fillText(words.filter(Boolean).join(" over "), MARGIN, MARGIN + 8);
  pen.font = font;
  rows.forEach((row, k) => row.forEach(({ name, colour, at }) => {
    const y = MARGIN + 8 + LINE * (k + 1);
    pen.fillStyle = colour;
    pen.fillRect(MARGIN + at, y - 5, 16, 3);
    pen.fillStyle = ink;
    pen.fillText(name, MARGIN + at + 21, y);
  }));
  picture.toBlob((blob) => save(blob, named(words, "png")));
}
