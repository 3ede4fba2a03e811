// Colours of the whole page: of players, of series, of ages and strengths, of payoffs. Variables of style.css hold them.

const PLAYERS = 8;  // colours that are told apart by eye
const RAMPS = {
  light: [[38, 52, 92], [47, 102, 144], [58, 138, 136], [112, 158, 92], [196, 158, 60], [206, 112, 56], [178, 62, 36]],
  dark: [[104, 124, 190], [92, 150, 200], [88, 178, 172], [150, 196, 128], [230, 202, 112], [236, 152, 92], [226, 104, 76]],
};
const STEPS = 255;  // of a palette, on each side of its middle

const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");

// f() when the colours change. Returns what ends it.
export function ontheme(f) {
  dark.addEventListener("change", f);
  return () => dark.removeEventListener("change", f);
}

// A variable of style.css as a canvas wants it: css("--line").
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// { ink, soft, … }: several of them. names: variables without their dashes.
export function colours(...names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map((name) => [name.replaceAll("-", "_"), style.getPropertyValue(`--${name}`).trim()]));
}

// ------------------------------------------------------------------------------------------------------------ players and series

// Of the k-th of n series: apart by hue where they are few, along the ramp where they are many. colour(player) is a player's: the same on boards, in
// tables, in charts and at the table; in markup var(--p0) … var(--p7), or the classes p0 … p7.
export const colour = (k, n = PLAYERS) => (n <= PLAYERS ? css(`--p${k % PLAYERS}`) : ramp(k / Math.max(1, n - 1)));

// From old or weak (0, blue) to new or strong (1, red).
export function ramp(place) {
  const stops = RAMPS[dark.matches ? "dark" : "light"];
  const at = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return `rgb(${stops[low].map((c, k) => Math.round(c + (at - low) * (stops[low + 1][k] - c))).join(",")})`;
}

export const faded = (text, opacity) => `rgba(${rgb(text).join(",")},${opacity})`;

// ------------------------------------------------------------------------------------------------------------ payoffs

// One scale for all payoffs: blue is less, red is more, the middle is neutral. share: in [−1, 1], past its ends the ends. For markup.
export function diverging(share) {
  const away = Math.min(1, Math.abs(share));
  return `color-mix(in srgb, var(${share < 0 ? "--heat-low" : "--heat-high"}) ${Math.round(100 * away)}%, var(--heat-middle))`;
}

// The same scale as pixels (little-endian RGBA): Uint32[2 × steps + 1], lowest first, and the place in it of a share.
export function palette() {
  const [from, between, to] = ["--heat-low", "--heat-middle", "--heat-high"].map((name) => rgb(css(name)));
  const pixels = Uint32Array.from({ length: 2 * STEPS + 1 }, (_, k) => {
    const end = k < STEPS ? from : to, share = Math.abs(k - STEPS) / STEPS;
    const [r, g, b] = between.map((c, at) => Math.round(c + share * (end[at] - c)));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
  return { pixels, steps: STEPS };
}

function rgb(text) {
  const hex = /^#(..)(..)(..)$/.exec(text);
  return hex ? hex.slice(1).map((two) => parseInt(two, 16)) : text.match(/[\d.]+/g).slice(0, 3).map(Number);
}
