// The list of ranked labels: a grid in which the arrow keys move from row to row.

import { byId, element, icon } from "./dom.js";
import { formatNumber, formatScore, say } from "./texts.js";

const LONG = 80; // characters

const grid = byId("labels");
let active = 0; // row with the focus, or that gets it
let actions = {};

/** @param given `decide(label, state)` for a decision, `explain(label, scroll)` for the row that is looked at. */
export function startRanking(given) {
  actions = given;
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moveBy(step);
  });
  grid.addEventListener("mouseleave", explainActive);
}

const rows = () => [...grid.querySelectorAll("[role=row][data-label-name]")];

/** Move the focus by some rows; to the ends with infinite steps. */
export function moveBy(step) {
  focusRow(Math.max(0, Math.min(active + step, rows().length - 1)));
}

export function focusRow(number) {
  active = number;
  markActive();
  rows()[active]?.focus();
}

export const focusActive = () => focusRow(active);

/** Show the words of the first label without moving the focus there. */
export function lookAtFirst() {
  active = 0;
  markActive();
  explainActive();
}

/** Accept or reject the label of the active row, and go on to the next. */
export function decideActive(state) {
  const row = rows()[active];
  if (!row) return;
  actions.decide(row.entry.label, state);
  moveBy(1);
}

function explainActive() {
  const row = rows()[active];
  if (row) actions.explain(row.entry, true);
}

/** One row can be reached by Tab, and its buttons; the others by arrow keys. */
function markActive() {
  rows().forEach((row, i) => {
    row.tabIndex = i === active ? 0 : -1;
    for (const button of row.querySelectorAll("button")) button.tabIndex = row.tabIndex;
  });
}

/**
 * Show labels, each an entry {label, path, score, n_samples, state, proposed}.
 * @param kind What scores are: probability, margin or count. @param fresh Whether it is another text: then start at the top.
 */
export function renderRanking(entries, kind, fresh) {
  const focused = grid.contains(document.activeElement);
  const name = fresh ? "" : rows()[active]?.entry.label;
  const bounds = entries.map((one) => one.score).filter(Number.isFinite);
  const scale = kind === "probability" ? [0, 1] : [Math.min(...bounds, 0), Math.max(...bounds)];
  grid.replaceChildren(
    ...(entries.length ? [renderHead(kind)] : []),
    ...entries.map((entry) => renderRow(entry, kind, scale)),
  );
  const place = entries.findIndex((entry) => entry.label === name); // rows may have come or gone above it
  active = fresh ? 0 : place >= 0 ? place : Math.max(0, Math.min(active, entries.length - 1));
  markActive();
  if (focused) rows()[active]?.focus({ preventScroll: true });
}

function renderHead(kind) {
  const titles = [
    ["decide", "labels.decision"],
    ["name", "labels.label"],
    ["score", `score.${kind}`],
    ["count", "labels.samples"],
  ];
  const cells = titles.map(([name, key]) =>
    element("div", { role: "columnheader", class: name }, element("span", {}, say(key))),
  );
  return element("div", { role: "row", class: "row head" }, ...cells);
}

function renderRow(entry, kind, scale) {
  const classes = ["row", entry.state, entry.proposed ? "" : "below"].filter(Boolean).join(" ");
  const row = element(
    "div",
    {
      role: "row",
      class: classes,
      tabindex: -1,
      "data-label-name": entry.label,
      "data-state": entry.state,
      onfocusin: () => {
        active = rows().indexOf(row);
        markActive();
        explainActive();
      },
      onmouseenter: () => actions.explain(entry, false),
    },
    element(
      "div",
      { role: "gridcell", class: "decide" },
      renderButton(entry, "accepted", "check"),
      renderButton(entry, "rejected", "cross"),
    ),
    element(
      "div",
      { role: "gridcell", class: "name" },
      renderName(entry.label),
      entry.state === "added" ? element("span", { class: "tag" }, say("labels.added")) : null,
      renderPath(entry.path),
    ),
    element("div", { role: "gridcell", class: "score" }, ...renderScore(entry, kind, scale)),
    element("div", { role: "gridcell", class: "count", title: say("labels.samples") }, formatNumber(entry.n_samples)),
  );
  row.entry = entry;
  return row;
}

function renderButton(entry, state, name) {
  const pressed = entry.state === state || (entry.state === "added" && state === "accepted");
  return element(
    "button",
    {
      class: `icon ${state}`,
      tabindex: -1,
      "aria-pressed": pressed,
      title: say(`decide.${state}`),
      "aria-label": say(`decide.${state}.label`, { label: entry.label }),
      onclick: () => actions.decide(entry.label, state),
    },
    icon(name),
  );
}

/** A name; long ones in smaller letters. */
export function renderName(name) {
  const long = name.length > LONG;
  return element("span", { class: long ? "label long" : "label", title: long ? name : null, dir: "auto" }, name);
}

/** The broader labels, from the root; the middle of a long path is left out. */
export function renderPath(path) {
  return path?.length ? element("span", { class: "path", title: path.join(" › ") }, shorten(path).join(" › ")) : null;
}

const shorten = (path) => (path.length > 4 ? [path[0], "…", ...path.slice(-3)] : path);

function renderScore(entry, kind, [low, high]) {
  if (entry.score === undefined) return []; // of a label that the user added, until the model has said what it thinks of it
  const share = (entry.score - low) / (high - low || 1);
  return [
    element("span", { class: "meter", "--value": share }),
    element("span", { class: "value" }, formatScore(entry.score, kind)),
  ];
}
