// A canvas to look around in: drag, wheel, pinch and keys move what is seen; whoever uses it paints and says what lies where.
//
// What is drawn lies in a world of its own units, [0, width] × [0, height]. A stage shows a window of it inside its insets:
//   screen x = left + (world x - view.x) × scale x        and the same for y
// `scale` is what one unit of the world measures on the screen, in CSS pixels. A flat stage zooms along x only; its y is in pixels.

import { h } from "./dom.js";
import { ontheme } from "./colours.js";

const STEP = 1.4;  // of a key or button
const SLACK = 4;  // pixels that a click may move
const TALL = 1.6, WIDER = 3;  // times as high as wide, from which points are spread; and at most so many times as wide as they are

// options: {
//   label: its name for a screen reader; describedby: id of a text on what is seen; legend: a node on what colours mean, shown below
//   height: (width) => CSS pixels;  insets: (width) => { left, top, right, bottom }, all optional
//   world: () => { width, height };  closest: () => greatest scale;  flat: bool;  centred: bool
//   paint: (context, stage) => void;  hover: (point | null) => void;  pick: (point) => void;  key: (event) => bool, whether it was taken
//   theme: () => void, called before the next painting when colours change
// }
// A point is { x, y, screenX, screenY, inside }: in the world and on the canvas.
export function stage(node, options) {
  return new Stage(node, options);
}

class Stage {
  constructor(node, options) {
    this.options = options;
    this.view = { x: 0, y: 0, scale: 0 };
    this.size = { width: 0, height: 0, ratio: 1 };
    this.moved = false;  // by the user: then a new size or new data leave the view where it is
    this.pointers = new Map();
    this.canvas = h("canvas", {
      class: "stage-canvas", tabindex: "0", role: "application", "aria-label": options.label, "aria-describedby": options.describedby ?? null,
    });
    this.context = this.canvas.getContext("2d");
    this.hint = h("div", { class: "stage-tip", hidden: true });
    const button = (text, name, act) => h("button", { type: "button", text, title: name, "aria-label": name, on: { click: act } });
    this.tools = h("div", { class: "stage-tools", role: "group", "aria-label": "Zoom" }, button("+", "Zoom in", () => this.zoom(STEP)), button("−", "Zoom out", () => this.zoom(1 / STEP)), button("⤢", "Show everything", () => this.fit()));
    this.node = h("div", { class: "stage" }, this.canvas, this.hint);
    node.append(this.node, h("div", { class: "stage-foot" }, options.legend, this.tools));
    this.listen();
  }

  listen() {
    const on = (name, act, settings) => this.canvas.addEventListener(name, act, settings);
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.up(event));
    on("pointercancel", (event) => this.pointers.delete(event.pointerId));
    on("pointerleave", () => { if (!this.pointers.size) this.options.hover?.(null); });
    on("wheel", (event) => this.wheel(event), { passive: false });
    on("keydown", (event) => this.key(event));
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.node);
    this.untheme = ontheme(() => { this.options.theme?.(); this.draw(); });
  }

  destroy() {
    this.watcher.disconnect();
    this.untheme();
    cancelAnimationFrame(this.frame);
  }

  // ---------------------------------------------------------------------------------------------------------- geometry

  get insets() {
    return { left: 0, top: 0, right: 0, bottom: 0, ...this.options.insets?.(this.size.width) };
  }

  get body() {
    const { left, top, right, bottom } = this.insets;
    return { left, top, width: Math.max(1, this.size.width - left - right), height: Math.max(1, this.size.height - top - bottom) };
  }

  get scaleY() {
    return this.options.flat ? 1 : this.view.scale;
  }

  // The scale at which the whole world is seen.
  get whole() {
    const { width, height } = this.options.world(), body = this.body;
    const across = body.width / Math.max(width, 1e-9);
    const scale = this.options.flat ? across : Math.min(across, body.height / Math.max(height, 1e-9));
    return Math.min(scale, this.closest);
  }

  get closest() {
    return this.options.closest?.() ?? 40;
  }

  toScreen(x, y) {
    const { left, top } = this.body;
    return [left + (x - this.view.x) * this.view.scale, top + (y - this.view.y) * this.scaleY];
  }

  toWorld(screenX, screenY) {
    const { left, top } = this.body;
    return [(screenX - left) / this.view.scale + this.view.x, (screenY - top) / this.scaleY + this.view.y];
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), body = this.body;
    const screenX = event.clientX - box.left, screenY = event.clientY - box.top;
    const [x, y] = this.toWorld(screenX, screenY);
    const inside = screenX >= body.left && screenY >= body.top && screenX <= body.left + body.width && screenY <= body.top + body.height;
    return { x, y, screenX, screenY, inside };
  }

  clamp() {
    const { width, height } = this.options.world(), body = this.body;
    this.view.scale = Math.min(Math.max(this.view.scale, this.whole), this.closest);
    const along = (at, size, seen) => {
      if (size <= seen) return this.options.centred ? (size - seen) / 2 : 0;
      return Math.min(Math.max(at, 0), size - seen);
    };
    this.view.x = along(this.view.x, width, body.width / this.view.scale);
    this.view.y = along(this.view.y, height, body.height / this.scaleY);
    this.tools.hidden = this.whole >= this.closest;  // all of it is seen, as large as it gets
    // Where there is nothing to move, one finger scrolls the page.
    this.canvas.style.touchAction = this.zoomed ? "none" : "pan-y";
  }

  get zoomed() {
    return this.view.scale > this.whole * 1.001 || (this.options.flat && this.options.world().height > this.body.height);
  }

  resize() {
    const width = this.node.clientWidth;
    if (!width) return;
    const height = Math.round(this.options.height(width)), ratio = window.devicePixelRatio || 1;
    if (width !== this.size.width || height !== this.size.height || ratio !== this.size.ratio) {
      this.size = { width, height, ratio };
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    if (!this.moved) this.view.scale = 0;  // the least there is: everything
    this.clamp();
    this.paint();  // at once: a canvas is empty after it changes size
  }

  // ---------------------------------------------------------------------------------------------------------- moving

  fit() {
    this.moved = false;
    this.view.scale = 0;
    this.clamp();
    this.draw();
  }

  // Around a place on the screen, or around the middle.
  zoom(factor, screenX = this.body.left + this.body.width / 2, screenY = this.body.top + this.body.height / 2) {
    const [x, y] = this.toWorld(screenX, screenY), { left, top } = this.body;
    this.view.scale = Math.min(Math.max(this.view.scale * factor, this.whole), this.closest);
    this.view.x = x - (screenX - left) / this.view.scale;
    this.view.y = y - (screenY - top) / this.scaleY;
    this.moved = this.view.scale > this.whole * 1.001;
    this.clamp();
    this.draw();
  }

  pan(pixelsX, pixelsY) {
    this.view.x -= pixelsX / this.view.scale;
    this.view.y -= pixelsY / this.scaleY;
    this.moved = true;
    this.clamp();
    this.draw();
  }

  // Moves as little as needed for a place of the world to be seen.
  show(x, y, margin = 1) {
    const body = this.body, seenX = body.width / this.view.scale, seenY = body.height / this.scaleY;
    const into = (at, from, seen) => (seen <= 2 * margin ? at - seen / 2 : Math.min(Math.max(from, at + margin - seen), at - margin));
    this.view.x = into(x, this.view.x, seenX);
    this.view.y = into(y, this.view.y, seenY);
    this.clamp();
    this.draw();
  }

  down(event) {
    if (event.button > 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, startX: event.clientX, startY: event.clientY });
    if (this.pointers.size === 1) this.dragged = false;
  }

  move(event) {
    const held = this.pointers.get(event.pointerId);
    if (!held) {
      this.options.hover?.(this.point(event));
      return;
    }
    if (this.pointers.size === 2) this.pinch(event, held);
    else this.drag(event, held);
    held.x = event.clientX;
    held.y = event.clientY;
  }

  drag(event, held) {
    if (!this.dragged && Math.hypot(event.clientX - held.startX, event.clientY - held.startY) < SLACK) return;
    this.dragged = true;
    this.options.hover?.(null);
    if (this.zoomed) this.pan(event.clientX - held.x, event.clientY - held.y);
  }

  pinch(event, held) {
    this.dragged = true;
    const [other] = [...this.pointers.values()].filter((pointer) => pointer !== held);
    const before = Math.hypot(held.x - other.x, held.y - other.y), after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const box = this.canvas.getBoundingClientRect();
    this.zoom(after / Math.max(before, 1), (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
    this.pan((event.clientX - held.x) / 2, (event.clientY - held.y) / 2);
  }

  up(event) {
    const held = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (held && !this.dragged) this.options.pick?.(this.point(event));
  }

  // A plain wheel scrolls the page until the canvas has been clicked; with Ctrl (and so by a trackpad's pinch) it always zooms.
  wheel(event) {
    const meant = event.ctrlKey || event.metaKey || document.activeElement === this.canvas;
    if (!meant || (event.deltaY > 0 && !this.zoomed && !event.ctrlKey)) return;
    event.preventDefault();
    const { screenX, screenY } = this.point(event);
    const pixels = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    this.zoom(Math.exp(-pixels * (event.ctrlKey ? 0.008 : 0.002)), screenX, screenY);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (this.options.key?.(event)) event.preventDefault();
    else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.fit();
    else if (moves[event.key] && this.zoomed) {
      event.preventDefault();
      this.pan(...moves[event.key]);
    }
  }

  // ---------------------------------------------------------------------------------------------------------- painting

  draw() {
    this.frame ??= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    if (!this.size.width) return;
    const { width, height, ratio } = this.size;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.lineWidth = 1;
    this.context.globalAlpha = 1;
    this.options.paint(this.context, this);
  }

  // Children beside a place on the canvas; null hides them.
  tip(screenX, screenY, children) {
    if (screenX === null) {
      this.hint.hidden = true;
      return;
    }
    this.hint.replaceChildren(...children);
    this.hint.hidden = false;
    const { offsetWidth, offsetHeight } = this.hint, { width, height } = this.size;
    const x = screenX + 16 + offsetWidth > width ? Math.max(0, screenX - 12 - offsetWidth) : screenX + 16;
    const y = screenY + 16 + offsetHeight > height ? Math.max(0, screenY - 12 - offsetHeight) : screenY + 16;
    this.hint.style.transform = `translate(${x}px, ${y}px)`;
  }
}

// -------------------------------------------------------------------------------------------------- what canvases share

export function font(size, weight = 400) {
  return `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
}

// A scale of colours between the texts (or nodes) of its ends, which stay together where a line is short. name: its class.
export function scaleKey(from, name, to) {
  return h("span", { class: "key-item" }, h("span", null, from), h("span", { class: name, "aria-hidden": "true" }), h("span", null, to));
}

// A text no wider than `width` pixels, cut in the middle: names differ at their ends.
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text.length - 1;
  const cut = () => `${text.slice(0, Math.ceil(kept / 2) - 1)}…${text.slice(text.length - Math.floor(kept / 2))}`;
  while (kept > 2 && context.measureText(cut()).width > width) kept -= 1;
  return cut();
}

// The nearest of places (each with at: [x, y] on the screen) within reach of a point; null if there is none.
export function nearest(places, screenX, screenY, reach = 14) {
  let found = null, least = reach;
  for (const place of places) {
    const distance = Math.hypot(place.at[0] - screenX, place.at[1] - screenY) - (place.radius ?? 0);
    if (distance < least) [found, least] = [place, distance];
  }
  return found;
}

// The nearest place in the direction of an arrow key; null if there is none.
export function neighbour(places, from, key) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  let found = null, least = Infinity;
  for (const place of places) {
    const x = place.at[0] - from.at[0], y = place.at[1] - from.at[1];
    const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (along < 1 || aside > along * 2) continue;  // behind, or rather in another direction
    if (along + 2 * aside < least) [found, least] = [place, along + 2 * aside];
  }
  return found;
}

// Writes names beside their places (above: above or beside, so that none seems to belong to a place below) where there is room, the first ones first. places: [{ at, radius, name }].
// halo: of what is behind, so that lines below a name do not blur it. dots: places that no name may cover (its own is never covered).
export function nameThem(context, places, { width, height, most = 60, colour, halo, above = false, dots = [] }) {
  const taken = dots.map(({ at: [x, y], radius }) => ({ x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius }));
  const free = (box) => box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height
    && !taken.some((other) => box.x < other.x + other.width && other.x < box.x + box.width && box.y < other.y + other.height && other.y < box.y + box.height);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.fillStyle = colour;
  let written = 0;
  for (const { at: [x, y], radius: own, sink, name } of places) {
    const radius = own + (sink ? 4 : 0);  // and its ring
    if (written >= most) break;
    if (x < 0 || y < 0 || x > width || y > height) continue;
    const size = context.measureText(name).width;
    const beside = [[x + radius + 4, y - 7], [x - radius - 4 - size, y - 7]], upright = [[x - size / 2, y - radius - 15], [x - size / 2, y + radius + 3]];
    const box = (above ? [upright[0], ...beside] : [...beside, ...upright]).map(([left, top]) => ({ x: left, y: top, width: size, height: 14 })).find(free);
    if (!box) continue;
    taken.push(box);
    context.strokeStyle = halo;
    context.strokeText(name, box.x, box.y + 7);
    context.fillText(name, box.x, box.y + 7);
    written += 1;
  }
}

// [x, y] of each point in a world of the given size, upwards y; a single place lies in its middle. Both axes have one scale, but what is tall and
// narrow is drawn wider, since a canvas is wide.
export function spread(points, width, height, margin = 0) {
  const range = (values) => (values.length ? [Math.min(...values), Math.max(...values)] : [0, 0]);
  const [left, right] = range(points.map((p) => p.x)), [low, high] = range(points.map((p) => p.y));
  const room = [Math.max(1, width - 2 * margin), Math.max(1, height - 2 * margin)];
  const across = right > left ? room[0] / (right - left) : Infinity, up = high > low ? room[1] / (high - low) : Infinity;
  const scale = Number.isFinite(Math.min(across, up)) ? Math.min(across, up) : 0;
  const tall = high - low > TALL * (right - left);
  const wider = tall && Number.isFinite(across) ? Math.min(across, WIDER * scale) : scale;
  return points.map((p) => [width / 2 + (p.x - (left + right) / 2) * wider, height / 2 - (p.y - (low + high) / 2) * scale]);
}
