// The third tab: label the rows of a CSV or JSONL file. Some texts are sent at a time, so cancelling is not to send more.

import { predict } from "./api.js";
import { byId, element, setOptions } from "./dom.js";
import { acceptFiles, cellText, guessColumn, readFile } from "./files.js";
import { writeCsv } from "./formats.js";
import { showError } from "./messages.js";
import { formatScore, say } from "./texts.js";

const TEXTS = 100; // of a request
const CHARACTERS = 500_000; // of a request, below the limit of the service
const SHOWN = 20; // rows of the preview

let card = null;
let table = null; // {name, columns, rows}
let results = []; // labels of the rows that are done
let running = null; // AbortController while texts are sent
let status = () => ""; // what the status line says, in the language of the moment

export function startBatch() {
  acceptFiles(byId("batch-drop"), byId("batch-open"), byId("batch-file"), open);
  byId("batch-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("batch-column").addEventListener("change", () => {
    reset(); // labels are those of another column
    renderBatch();
  });
  byId("batch-cancel").addEventListener("click", () => running.abort());
  byId("batch-csv").addEventListener("click", () => save("csv", "text/csv", toCsv()));
  byId("batch-jsonl").addEventListener("click", () => save("jsonl", "application/jsonl", toJsonl()));
}

export function setBatchModel(chosen) {
  card = chosen;
  reset();
  byId("batch-threshold").value = card.score === "probability" ? 0 : "";
  byId("batch-threshold").disabled = card.score !== "probability";
  renderBatch();
}

function reset() {
  running?.abort();
  running = null;
  results = [];
  status = () => "";
}

async function open(file) {
  try {
    const content = await readFile(file);
    if (!content.rows) throw new Error(say("batch.table", { name: file.name }));
    reset();
    table = { name: file.name, ...content };
    setOptions(
      byId("batch-column"),
      table.columns.map((column) => [column, column]),
    );
    byId("batch-column").value = guessColumn(table);
    renderBatch();
    byId("batch-start").focus();
  } catch (error) {
    showError(error);
  }
}

/** The positions after the last text of each request: at most some texts, and some characters. */
export function cutBatches(texts) {
  const ends = [];
  let start = 0,
    length = 0;
  texts.forEach((text, i) => {
    if (i > start && (i - start === TEXTS || length + text.length > CHARACTERS)) {
      ends.push(i);
      [start, length] = [i, 0];
    }
    length += text.length;
  });
  return texts.length ? [...ends, texts.length] : ends;
}

async function run() {
  const column = byId("batch-column").value;
  const texts = table.rows.map((row) => cellText(row[column]));
  const options = { model: card.name, k: Number(byId("batch-count").value) };
  if (Number(byId("batch-threshold").value)) options.threshold = Number(byId("batch-threshold").value) / 100;
  const current = (running = new AbortController());
  const started = Date.now();
  results = [];
  renderBatch();
  try {
    for (const end of cutBatches(texts)) {
      const part = texts.slice(results.length, end);
      const answer = await predictPatiently({ ...options, texts: part }, current.signal);
      results.push(...answer.results.map((one, i) => (part[i].trim() ? one.labels : []))); // a cell may be empty
      const minutes = ((Date.now() - started) / 60_000) * (texts.length / results.length - 1);
      setStatus(() => say("batch.running", { done: results.length, total: texts.length, n: Math.ceil(minutes) }));
    }
    setStatus(() => say("batch.done", { n: results.length }));
  } catch (error) {
    if (running !== current) return; // another file or model was chosen meanwhile
    showError(error);
    setStatus(() => say("batch.stopped", { done: results.length, total: texts.length }));
  }
  running = null;
  renderBatch();
}

/** Predict; while the service is busy, wait as long as it asks to, and try again. */
async function predictPatiently(content, signal) {
  for (;;) {
    try {
      return await predict(content, signal);
    } catch (error) {
      if (error.status !== 429 && error.status !== 503) throw error;
      await new Promise((resolve) => {
        setTimeout(resolve, 1000 * error.retryAfter);
      });
      signal.throwIfAborted();
    }
  }
}

function setStatus(describe) {
  status = describe;
  byId("batch-status").textContent = status();
  byId("batch-progress").value = results.length;
}

export function renderBatch() {
  byId("batch-form").hidden = byId("batch-state").hidden = byId("batch-preview").hidden = !table;
  if (!table) return;
  byId("batch-about").textContent = say("batch.about", { name: table.name, n: table.rows.length });
  byId("batch-start").disabled = Boolean(running) || card.reads === "vectors";
  byId("batch-cancel").disabled = !running;
  for (const id of ["batch-csv", "batch-jsonl"]) byId(id).disabled = Boolean(running) || !results.length;
  byId("batch-progress").max = table.rows.length;
  setStatus(status);
  renderPreview();
}

function renderPreview() {
  const column = byId("batch-column").value;
  const head = element(
    "tr",
    {},
    ...["#", column, say("labels.title")].map((title) => element("th", { scope: "col" }, title)),
  );
  const rows = table.rows
    .slice(0, SHOWN)
    .map((row, i) =>
      element(
        "tr",
        {},
        element("td", {}, String(i + 1)),
        element("td", { class: "text" }, cellText(row[column]).slice(0, 300)),
        element("td", {}, renderLabels(results[i])),
      ),
    );
  const caption = element("caption", {}, say("batch.shown", { n: rows.length }));
  byId("batch-preview").replaceChildren(
    element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows)),
  );
}

function renderLabels(labels) {
  const chips = (labels ?? []).map((one) =>
    element("li", {}, one.label, element("small", {}, formatScore(one.score, card.score))),
  );
  return element("ul", { class: "chips" }, ...chips);
}

/** The columns of the file, then each label and its score, as `longtail predict --output csv` writes them. */
function toCsv() {
  const most = results.reduce((largest, labels) => Math.max(largest, labels.length), 0);
  const numbers = Array.from({ length: most }, (_, i) => i + 1);
  const head = [...table.columns, ...numbers.flatMap((i) => [`label_${i}`, `score_${i}`])];
  const rows = results.map((labels, i) => [
    ...table.columns.map((column) => cellText(table.rows[i][column])),
    ...numbers.flatMap((_, j) => (labels[j] ? [labels[j].label, round(labels[j].score)] : ["", ""])),
  ]);
  return writeCsv([head, ...rows]);
}

/** Labels that the file has are kept. */
function toJsonl() {
  const key = table.columns.includes("labels") ? "predicted_labels" : "labels";
  const lines = results.map((labels, i) => ({
    ...table.rows[i],
    [key]: labels.map(({ label, id, score }) => ({ label, id, score: round(score) })),
  }));
  return lines.map((line) => JSON.stringify(line) + "\n").join("");
}

const round = (score) => Number(score.toPrecision(6));

function save(ending, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  element("a", { href: url, download: `${table.name.replace(/\.\w+$/, "")}.labels.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
