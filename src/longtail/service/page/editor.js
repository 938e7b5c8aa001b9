// The text: typed, pasted, dropped or read from a file, one record after the other; and the words that speak for a label.

import { byId, setOptions } from "./dom.js";
import { acceptFiles, cellText, guessColumn, readFile } from "./files.js";
import { listWords, renderPieces, shade } from "./highlight.js";
import { showError } from "./messages.js";
import { say } from "./texts.js";

const text = byId("text");
const backdrop = byId("backdrop");
let table = null; // the records of a CSV or JSONL file
let position = 0;
let unknown = null; // of the last prediction: {n_words, n_unknown}

export const getText = () => text.value;

/** @param onChange Called when the user edits the text. @param onText Called when another text is loaded. */
export function startEditor(onChange, onText) {
  text.addEventListener("input", () => {
    clearHighlight();
    showUnknown(null);
    onChange();
  });
  text.addEventListener("scroll", () => {
    backdrop.scrollTop = text.scrollTop;
  });
  acceptFiles(byId("text-panel"), byId("open-file"), byId("file"), async (file) => {
    try {
      load(await readFile(file), onText);
    } catch (error) {
      showError(error);
    }
  });
  byId("previous-record").addEventListener("click", () => showRecord(position - 1, onText));
  byId("next-record").addEventListener("click", () => showRecord(position + 1, onText));
  byId("record-column").addEventListener("change", () => showRecord(position, onText));
}

function load(content, onText) {
  table = content.rows ? content : null;
  byId("records").hidden = !table;
  if (!table) return setText(content.text, onText);
  setOptions(
    byId("record-column"),
    table.columns.map((column) => [column, column]),
  );
  byId("record-column").value = guessColumn(table);
  showRecord(0, onText);
}

function showRecord(number, onText) {
  position = Math.max(0, Math.min(number, table.rows.length - 1));
  renderEditor();
  setText(cellText(table.rows[position][byId("record-column").value]), onText);
}

function setText(content, onText) {
  text.value = content;
  text.scrollTop = 0;
  clearHighlight();
  showUnknown(null);
  onText();
}

/** Show how many words the model does not know. */
export function showUnknown(counts) {
  unknown = counts;
  renderEditor();
}

export function renderEditor() {
  const words = text.value.split(/\s+/).filter(Boolean).length;
  const parts = [say("text.words", { n: words })];
  if (unknown) parts.push(say("text.unknown", { n: unknown.n_unknown }));
  byId("counter").textContent = parts.join(" · ");
  if (!table) return;
  byId("record-number").textContent = say("records.number", { number: position + 1, total: table.rows.length });
  byId("previous-record").disabled = position === 0;
  byId("next-record").disabled = position === table.rows.length - 1;
}

/** Mark the words that speak for a label, and name them. */
export function highlight(label, scroll) {
  const { parts } = label;
  if (!parts) return clearHighlight(); // the model has not explained it
  const words = listWords(text.value, parts);
  backdrop.replaceChildren(...renderPieces(shade(text.value, parts)), "\n");
  const name = label.label.length > 60 ? `${label.label.slice(0, 59)}…` : label.label;
  const why = words.length ? say("why", { label: name, words: words.join(", ") }) : say("why.none", { label: name });
  setWhy(why, words);
  const strongest = backdrop.querySelector(".level3");
  if (scroll && strongest && !isVisible(strongest)) text.scrollTop = strongest.offsetTop - text.clientHeight / 3;
  backdrop.scrollTop = text.scrollTop;
}

const isVisible = (mark) =>
  mark.offsetTop >= text.scrollTop && mark.offsetTop + mark.offsetHeight <= text.scrollTop + text.clientHeight;

export function clearHighlight() {
  backdrop.replaceChildren();
  setWhy("", []);
}

/** Name the words below the text; in a narrow window also below the labels, since the text is out of sight there. */
function setWhy(content, words) {
  byId("why").textContent = content;
  byId("why-narrow").textContent = words.join(", ");
}
