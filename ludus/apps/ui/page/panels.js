// A page that is made of cards, each of which shows one panel of a run.

import { failure } from "./dom.js";

const LONGEST = 200;  // milliseconds for which the other panels wait for the first ones' frame

// parts: [{ panel, params?, node, set(data), close? }], several may show one panel, and one may
// stand in the node of another. first: names of the panels that are seen without scrolling: a server is asked for the others once these are
// painted. Fills root and returns what show() returns. A panel
// that cannot be had says so in its own card; only a lost server or a wrong token is the whole page's matter.
export async function cards(root, { source, run, parts, first = [] }) {
  root.append(...parts.map(({ node }) => node).filter((node) => !node.parentNode));

  async function fill(panels) {
    const wanted = parts.filter(({ panel }) => panels.has(panel));
    const names = [...new Set(wanted.map(({ panel }) => panel))];
    await Promise.all(names.map(async (name) => {
      const mine = wanted.filter(({ panel }) => panel === name);
      try {
        const data = await source.get(`runs/${run}/${name}`, mine[0].params);
        for (const part of mine) {
          part.failed?.remove();
          part.set(data);
        }
      } catch (error) {
        if (error.status === 0 || error.status === 401 || (name === "overview" && error.status === 404)) throw error;
        for (const part of mine) {
          part.failed?.remove();
          part.node.hidden = false;
          part.node.append((part.failed = failure(error)));
        }
        if (error.status === undefined) throw error;  // a mistake of ours: the console shows it
      }
    }));
  }

  const all = new Set(parts.map(({ panel }) => panel)), soon = new Set(first);
  if (first.length && source.live && !source.whole) {
    await fill(soon);
    await painted();
    await fill(new Set([...all].filter((panel) => !soon.has(panel))));
  } else await fill(all);
  return { update: fill, close() { for (const { close } of parts) close?.(); } };
}

// A page that nobody looks at is not painted.
const painted = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, LONGEST); });
