// Tags and notes of a run: shown to all, edited by who may steer, in a dialog.

import { announce, h, sentence } from "./dom.js";

const LIMITS = { tags: 16, tag: 40, notes: 4000 };  // the server's, which checks them

// The tags of a run as buttons. press(tag)
export function tagList(tags, press) {
  return tags.map((tag) => h("button", { type: "button", class: "tag", title: `Show the runs with the tag ${tag}`, text: tag, on: { click: () => press(tag) } }));
}

// Opens the dialog. known: tags of other runs, as suggestions; saved({ tags, notes }) is called with what the server has kept.
export function editNotes({ source, run, known, saved }) {
  const tags = h("input", { class: "field", type: "text", maxlength: LIMITS.tags * (LIMITS.tag + 2), value: run.tags.join(", "), placeholder: "baseline, final", autocomplete: "off", autofocus: true });
  const notes = h("textarea", { class: "field", rows: 6, maxlength: LIMITS.notes });
  notes.value = run.notes;
  const problem = h("p", { class: "bad", role: "alert", text: run.notes_problem ? sentence(run.notes_problem) : "" });
  const list = () => tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
  const add = (tag) => { tags.value = [...new Set([...list(), tag])].join(", "); tags.focus(); };
  const others = known.filter((tag) => !run.tags.includes(tag)).slice(0, 12);
  const save = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      const kept = await source.post(`runs/${run.id}/notes`, { tags: list(), notes: notes.value });
      dialog.close();
      saved(kept);
      announce("Tags and notes are saved.");
    } catch (error) {
      problem.textContent = sentence(error.message);
    }
  };
  const dialog = h("dialog", { class: "card run-notes-dialog", "aria-label": `Tags and notes of ${run.name}`, on: { close: () => dialog.remove() } },
    h("form", { on: { submit: save } },
      h("h2", { text: run.name }),
      h("label", null, h("span", { text: "Tags, separated by commas" }), tags),
      others.length ? h("p", { class: "tags", role: "group", "aria-label": "Tags of other runs" }, others.map((tag) => h("button", { type: "button", class: "tag", text: `+ ${tag}`, on: { click: () => add(tag) } }))) : null,
      h("label", null, h("span", { text: "Notes" }), notes),
      problem,
      h("div", { class: "tools" }, h("button", { type: "submit", class: "more main", text: "Save" }), h("button", { type: "button", class: "more", text: "Cancel", on: { click: () => dialog.close() } }))));
  document.body.append(dialog);
  dialog.showModal();
}
