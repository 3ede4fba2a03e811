// What charts compute before they draw: ranges of axes and their ticks, smoothing, and fewer points where a screen has no room for more.

const ROOM = 0.06;  // of an axis, above and below what is drawn
const ROUNDING = 1e-9;  // of the largest value: what differs by less is equal, but for how computers count
const SHARE = 0.01;  // to which an axis of probabilities goes at least

// The axis of some values. values: of all that is shown, null and undefined are left out; log: logarithmic; share: of probabilities.
// Returns { low, high, floor }: floor is where a logarithmic axis draws values of 0 or below, null where there are none.
export function axis(values, { log = false, share = false } = {}) {
  let low = Infinity, high = -Infinity, least = Infinity, below = false;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
    if (value > 0) least = Math.min(least, value);
    else below = true;
  }
  if (high - low < ROUNDING * Math.max(Math.abs(low), Math.abs(high))) [low, high] = [high, high];
  if (share) return { low: 0, high: Math.max(SHARE, high * (1 + ROOM)), floor: null };
  if (!log || least === Infinity) return { ...padded(low, high), floor: null };
  const room = Math.max(1.05, (high / least) ** ROOM), floor = below ? least / Math.max(2, room * room) : null;
  return { low: floor ?? least / room, high: high * room, floor };
}

function padded(low, high) {
  if (low > high) return { low: 0, high: 1 };
  if (low === high) return low === 0 ? { low: 0, high: 1 } : { low: low - Math.abs(low) / 2, high: high + Math.abs(high) / 2 };
  const room = ROOM * (high - low);
  const bottom = low >= 0 && low < 0.4 * high ? 0 : low - room;  // zero is worth showing where it is near
  return { low: bottom, high: high <= 0 && high > 0.4 * low ? 0 : high + room };
}

// Round places of an axis, at most about `most` of them.
export function ticks(low, high, most = 5) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

const WITHIN = [1, 1.5, 2, 3, 5, 7];  // of a power, no more than half as much again as the one before
const NARROW = 0.4;  // powers of ten below which even steps are as good

// Of a logarithmic axis: the powers of ten that there is room for, 2 and 5 times them where few powers are seen, more of them or even steps within one power.
export function logTicks(low, high, most) {
  const seen = Math.log10(high / low);
  if (seen < NARROW) return ticks(low, high, Math.min(6, most)).filter((place) => place > 0);
  if (seen < 1) return within(WITHIN, low, high);
  const every = Math.max(1, Math.ceil(seen / most)), good = seen > 4 ? [1] : seen > 2 ? [1, 3] : [1, 2, 5];
  return within(good, low, high, every);
}

// Multiples of each power of ten that lie on an axis. every: of how many powers one is taken.
function within(multiples, low, high, every = 1) {
  const out = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) out.push(...multiples.map((k) => Number(`${k}e${power}`)));
  }
  return out.filter((place) => place >= low * (1 - 1e-9) && place <= high * (1 + 1e-9));
}

// An exponential moving average, unbiased as TensorBoard's: sum of w^(n - k) y_k over the sum of w^(n - k), k = 1 … n. w: 0 (as it is) to below 1.
// null is left out, and stays.
export function smoothed(values, weight) {
  let sum = 0, mass = 0;
  return values.map((value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

const POINTS = 300;  // of a mean of curves

// The mean of several curves with the lowest and the highest of them, where all have values. curves: [{ x: rising, values }], straight between points.
// Returns { x, mean, low, high }.
export function banded(curves) {
  const drawn = curves.map(({ x, values }) => x.map((v, k) => [v, values[k]]).filter(([v, value]) => v !== null && value !== null && value !== undefined)).filter((points) => points.length);
  const from = Math.max(...drawn.map((points) => points[0][0])), to = Math.min(...drawn.map((points) => points[points.length - 1][0]));
  if (!drawn.length || from > to) return { x: [], mean: [], low: [], high: [] };
  const longest = drawn.reduce((a, b) => (b.length > a.length ? b : a)), count = from === to ? 1 : Math.min(POINTS, Math.max(2, longest.length));
  const x = Array.from({ length: count }, (_, k) => (count === 1 ? from : from + ((to - from) * k) / (count - 1)));
  const rows = drawn.map((points) => interpolated(points, x));
  const over = (f) => x.map((_, k) => f(rows.map((row) => row[k])));
  return { x, mean: over((column) => column.reduce((a, b) => a + b, 0) / column.length), low: over((column) => Math.min(...column)), high: over((column) => Math.max(...column)) };
}

// points: [[x, value]] by x; at: places within them, rising.
function interpolated(points, at) {
  let k = 0;
  return at.map((place) => {
    while (k < points.length - 2 && points[k + 1][0] < place) k++;
    const [[x, value], [next, then]] = [points[k], points[Math.min(k + 1, points.length - 1)]];
    return next > x ? value + ((then - value) * Math.min(1, Math.max(0, place - x) / (next - x))) : then;
  });
}

// The place of the value in rising numbers that is nearest to one; −1 of none.
export function nearest(numbers, value) {
  let low = 0, high = numbers.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(numbers[low] - value) <= Math.abs(numbers[high] - value) ? low : high;
}

// Places of the points that draw a line between low and high: all where they are at most 2 × room, else of each of `room` stretches the lowest and the
// highest, so that no peak is lost; and one point to either side. x: rising.
export function drawnPlaces(x, values, [low, high], room) {
  let from = 0, to = x.length - 1;
  while (from < to && x[from + 1] < low) from++;
  while (to > from && x[to - 1] > high) to--;
  const count = to - from + 1;
  if (count <= 2 * room) return Array.from({ length: count }, (_, k) => from + k);
  const places = new Set([from, to]);
  for (let k = 0; k < room; k++) {
    const first = from + Math.floor((k * count) / room), end = from + Math.floor(((k + 1) * count) / room);
    let [lowest, highest] = [first, first];
    for (let at = first; at < end; at++) {
      if ((values[at] ?? Infinity) < (values[lowest] ?? Infinity)) lowest = at;
      if ((values[at] ?? -Infinity) > (values[highest] ?? -Infinity)) highest = at;
    }
    places.add(lowest).add(highest);
  }
  return [...places].sort((a, b) => a - b);
}
