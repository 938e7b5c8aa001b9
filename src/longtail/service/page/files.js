// Read files in the browser: plain text, HTML, and tables (CSV, TSV, JSONL, JSON).

import { say } from "./texts.js";

const LIMIT = 100 * 1024 * 1024; // bytes; a browser holds a file several times

/** Read a file: `{text}`, or for tables `{columns, rows}` with an object for each row. */
export async function readFile(file) {
  if (file.size > LIMIT) throw new Error(say("file.large", { name: file.name }));
  const content = decode(await file.arrayBuffer(), file.name);
  const ending = file.name.toLowerCase().split(".").at(-1);
  if (["csv", "tsv"].includes(ending)) return readTable(content, file.name);
  if (["jsonl", "ndjson", "json"].includes(ending)) return readObjects(content, file.name);
  if (["html", "htm"].includes(ending)) return { text: readHtml(content) };
  if (content.includes("\0")) throw new Error(say("file.binary", { name: file.name }));
  return { text: content };
}

/** The text of a file: in UTF-8, or in the encoding that its byte order mark or HTML names. No character is guessed. */
function decode(buffer, name) {
  const bytes = new Uint8Array(buffer);
  const start = String.fromCharCode(...bytes.subarray(0, 1024));
  const wide = { "\xff\xfe": "utf-16le", "\xfe\xff": "utf-16be" }[start.slice(0, 2)];
  const named = /\.html?$/i.test(name) ? start.match(/<meta[^>]*\bcharset\s*=\s*["']?\s*([\w-]+)/i)?.[1] : null;
  for (const encoding of [wide ?? "utf-8", named].filter(Boolean)) {
    try {
      return new TextDecoder(encoding, { fatal: true }).decode(bytes); // without the byte order mark
    } catch {
      // it is another encoding, or one that the browser does not know
    }
  }
  throw new Error(say(bytes.includes(0) ? "file.binary" : "file.encoding", { name }));
}

/** The text that a page shows. Scripts in it do not run. */
function readHtml(content) {
  const page = new DOMParser().parseFromString(content.replace(/\sstyle=("[^"]*"|'[^']*')/gi, ""), "text/html");
  for (const node of page.querySelectorAll("script, style, template, noscript, nav")) node.remove();
  for (const node of page.querySelectorAll("p, div, li, br, tr, h1, h2, h3, h4, h5, h6")) node.append("\n");
  return page.body.textContent
    .replace(/[^\S\n]+/g, " ")
    .replace(/ ?\n[\s]*/g, "\n")
    .trim();
}

function readTable(content, name) {
  const [header, ...rows] = parseCsv(content);
  if (!rows.length) throw new Error(say("file.empty", { name }));
  const columns = nameColumns(header);
  return { columns, rows: rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i] ?? ""]))) };
}

/** The titles of columns; those without one get their number, and so do those that repeat another, so that none is lost. */
function nameColumns(header) {
  const columns = [];
  header.forEach((title, i) => {
    const name = title.trim() || String(i + 1);
    columns.push(columns.includes(name) ? `${name} (${i + 1})` : name);
  });
  return columns;
}

function readObjects(content, name) {
  const list = content.trimStart().startsWith("[");
  const lines = list ? [content] : content.split("\n").filter((line) => line.trim());
  const rows = lines.map((line, i) => {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(say("file.json", { name, line: i + 1 }));
    }
  });
  const objects = (list ? rows[0] : rows).map((row) => (row !== null && typeof row === "object" ? row : { text: row }));
  if (!objects.length) throw new Error(say("file.empty", { name }));
  return { columns: [...new Set(objects.slice(0, 100).flatMap(Object.keys))], rows: objects };
}

/** The rows of a CSV file, separated by what the first line has most of. Cells in quotes may have line ends and quotes. */
export function parseCsv(content) {
  const first = content.split("\n", 1)[0];
  const separator = [",", ";", "\t", "|"].reduce((best, one) =>
    first.split(one).length > first.split(best).length ? one : best,
  );
  const rows = [];
  let row = [],
    cell = "",
    quoted = false;
  const endCell = () => {
    row.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    if (row.length > 1 || row[0]) rows.push(row);
    row = [];
  };
  for (let i = 0; i < content.length; i++) {
    const character = content[i];
    if (quoted) {
      if (character !== '"') cell += character;
      else if (content[i + 1] === '"') {
        cell += '"';
        i++;
      } else quoted = false;
    } else if (character === '"' && !cell) quoted = true;
    else if (character === separator) endCell();
    else if (character === "\n") endRow();
    else if (character !== "\r") cell += character;
  }
  if (cell || row.length) endRow();
  return rows;
}

/** The column that most likely holds the texts: one of the usual names, else the one with the longest cells. */
export function guessColumn({ columns, rows }) {
  const usual = ["text", "body", "content", "abstract", "description", "title"];
  const named = usual.find((name) => columns.includes(name));
  if (named) return named;
  const sample = rows.slice(0, 50);
  const length = (column) => sample.reduce((sum, row) => sum + cellText(row[column]).length, 0);
  return columns.reduce((best, column) => (length(column) > length(best) ? column : best));
}

/** A cell as text: lists and objects of JSON as they are written. */
export function cellText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Make an element accept dropped files, and a button with its hidden input open them. */
export function acceptFiles(area, button, input, onFile) {
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) onFile(input.files[0]);
    input.value = ""; // so that the same file can be opened again
  });
  for (const name of ["dragenter", "dragover"]) {
    area.addEventListener(name, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      area.classList.add("over");
    });
  }
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => {
    area.classList.remove("over");
    if (!event.dataTransfer.files[0]) return;
    event.preventDefault();
    onFile(event.dataTransfer.files[0]);
  });
}
