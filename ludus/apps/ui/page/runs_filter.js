// The filter of the list of runs: words that a run's texts hold, and comparisons with its settings and results.
//
//   leduc psro            both words stand in its name, game, algorithm, scenario, state, tags or notes
//   tag=baseline          one of its tags is that
//   gamma=0.99  seed>3    a setting, by its whole name or the end of it; a result, such as nash_conv<0.5
//   -interrupted          not

const TERM = /^(-?)([\w.]+)(<=|>=|=|<|>)(.+)$/;

// Returns { empty, settings (whether settings are asked for), test(run, settings) }. known: names that are results, not settings.
export function parse(text, known) {
  const terms = (text.match(/\S*"[^"]*"\S*|\S+/g) ?? []).map((word) => term(word.replaceAll('"', ""), known));
  return {
    empty: !terms.length,
    settings: terms.some((one) => one.setting),
    test: (run, settings) => terms.every((one) => one.test(run, settings)),
  };
}

function term(word, known) {
  const compared = TERM.exec(word);
  if (compared) {
    const [, not, name, sign, wanted] = compared, key = name.toLowerCase();
    const fits = (value) => holds(value, sign, wanted.toLowerCase());
    const one = key === "tag" || key === "tags" ? (run) => run.tags.some(fits) : known.has(key) ? (run) => fits(known.get(key)(run)) : (_, settings) => named(settings, key).some(fits);
    return { setting: !known.has(key) && !key.startsWith("tag"), test: (run, settings) => one(run, settings) !== Boolean(not) };
  }
  const not = word.length > 1 && word.startsWith("-"), part = (not ? word.slice(1) : word).toLowerCase();
  return { setting: false, test: (run) => texts(run).includes(part) !== not };
}

const texts = (run) => [run.name, run.group, run.game, run.algorithm, run.scenario, run.state, ...run.tags, run.notes].join("\n").toLowerCase();

// The values of the settings that are called so: "gamma" is also "algorithm.gamma".
function named(settings, key) {
  return Object.entries(settings ?? {}).filter(([name]) => name.toLowerCase() === key || name.toLowerCase().endsWith(`.${key}`)).map(([, value]) => value);
}

function holds(value, sign, wanted) {
  const [left, right] = [Number(value), Number(wanted)];
  const numbers = value !== null && value !== undefined && value !== "" && !Number.isNaN(left) && !Number.isNaN(right);
  if (sign === "=") return numbers ? left === right : String(value ?? "null").toLowerCase() === wanted;
  if (!numbers) return false;
  return { "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right }[sign];
}
