// Names where room is short: shortened where they agree, whole where they differ.

const LONGEST = 12;  // characters of a name that stays as it is
const HEAD = 5, TAIL = 3;  // characters before a cut, and at least after it

// [n] short forms of [n] names, each different from the others where the names are: "league_exploiter-0-12" → "LE0-12", "row 2 column 3" → "r2 c3";
// a name that ends in no number is cut in the middle: "conservative_player" → "conse…_player". longest: characters of a name that stays.
export function shortNames(names, longest = LONGEST) {
  const apart = [...new Set(names)], short = new Map(apart.map((name) => [name, name.length <= longest ? name : null]));
  for (const form of [(name) => initials(name, 1), (name) => initials(name, 3)]) settle(short, form);
  for (let tail = Math.max(TAIL, longest - HEAD - 1); [...short.values()].includes(null); tail += 1) settle(short, (name) => cut(name, tail));
  return names.map((name) => short.get(name));
}

// Gives the names without a short form theirs, where no other name has or would get the same.
function settle(short, form) {
  const open = [...short].filter(([, text]) => text === null).map(([name]) => [name, form(name)]);
  const uses = new Map();
  for (const text of [...short.values(), ...open.map(([, own]) => own)]) if (text !== null) uses.set(text, (uses.get(text) ?? 0) + 1);
  for (const [name, text] of open) if (text !== null && uses.get(text) === 1) short.set(name, text);
}

// Words by their first letters, numbers whole; null for a name that no number ends, which initials would not tell.
function initials(name, letters) {
  if (!/\d$/.test(name)) return null;
  return name.replace(/[A-Za-z]+(?:_[A-Za-z]+)*/g, (words) => {
    const parts = words.split("_");
    return parts.length > 1 ? parts.map((part) => part[0].toUpperCase() + part.slice(1, letters)).join("") : words.slice(0, letters);
  }).replace(/([A-Za-z])[-_ ]+(?=\d)/g, "$1");
}

function cut(name, tail) {
  return name.length <= HEAD + 1 + tail ? name : `${name.slice(0, HEAD)}…${name.slice(-tail)}`;
}
