// Write labels and tables as text: what is copied and what is downloaded.

const CSV_HEAD = ["label", "id", "score"];

/** Labels in one of the formats of the copy menu. */
export const FORMATS = {
  names: (labels) => labels.map((one) => one.label).join("\n"),
  uris: (labels) => labels.map((one) => one.id).join("\n"),
  json: (labels) =>
    JSON.stringify(
      labels.map(({ label, id, score, path }) => ({ label, id, score, path })),
      null,
      2,
    ),
  csv: (labels) => writeCsv([CSV_HEAD, ...labels.map((one) => [one.label, one.id, one.score ?? ""])]),
  marc: (labels) => labels.map(writeMarc).join("\n"),
};

/** A topical subject (650) in the line format of MARC editors; second indicator 4, since the source is not known. */
function writeMarc({ label, id }) {
  const identifier = /^https?:/.test(id) ? `$0${escapeMarc(id)}` : "";
  return `=650  \\4$a${escapeMarc(label)}${identifier}`;
}

const escapeMarc = (value) =>
  value.replace(/[{}$\\]/g, (sign) => ({ "{": "{lcub}", "}": "{rcub}", $: "{dollar}", "\\": "{bsol}" })[sign]);

export function writeCsv(rows) {
  return rows.map((row) => row.map(writeCell).join(",")).join("\r\n") + "\r\n";
}

/** A cell. A spreadsheet would run a text that begins with = + - @ as a formula: it gets an apostrophe. Numbers stay. */
export function writeCell(value) {
  let cell = String(value);
  if (/^[=+\-@\t\r]/.test(cell) && typeof value !== "number") cell = `'${cell}`;
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
