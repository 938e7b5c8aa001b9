// The dialog to add a label: a search by name, synonym or meaning, and the hierarchy while nothing is searched for.

import { searchLabels } from "./api.js";
import { byId, element, icon, openDialog } from "./dom.js";
import { showError } from "./messages.js";
import { renderName, renderPath } from "./ranking.js";
import { formatNumber, say } from "./texts.js";
import { openTree } from "./tree.js";

const LIMIT = 20;
const PAUSE = 120; // milliseconds without a key before a request

const query = byId("query");
const found = byId("found");
let card = null;
let actions = {};
let timer = 0;
let running = null;
let active = -1; // option that Enter picks

/** @param given `pick(label)` adds a label or takes it back, `isPicked(name)` says which are marked. */
export function startPicker(given) {
  actions = given;
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  for (const node of [query, found]) node.addEventListener("keydown", handleKey);
  for (const choice of document.querySelectorAll("[name=by]")) choice.addEventListener("change", search);
}

export function openPicker(model) {
  card = model;
  byId("tree").replaceChildren();
  query.value = "";
  openDialog(byId("picker"));
  query.focus();
  search();
}

async function search() {
  running?.abort();
  running = new AbortController();
  const q = query.value.trim();
  const by = document.querySelector("[name=by]:checked").value;
  if (!q) return showTree();
  try {
    const { labels } = await searchLabels({ model: card.name, q, by, limit: LIMIT }, running.signal);
    showFound(labels, q);
  } catch (error) {
    showError(error);
  }
}

async function showTree() {
  show(card.has_parents ? "tree" : null, card.has_parents ? "" : say("picker.start", { n: card.n_labels }));
  if (card.has_parents && !byId("tree").children.length)
    await openTree(byId("tree"), card.name, actions.pick, actions.isPicked);
}

function showFound(labels, q) {
  found.replaceChildren(...labels.map(makeOption));
  show(labels.length ? "found" : null, labels.length ? "" : say("picker.none", { query: q }));
  setActive(labels.length ? 0 : -1);
}

/** Show the options found, the tree, or only a note. */
function show(part, note) {
  for (const id of ["found", "tree"]) byId(id).hidden = id !== part;
  query.setAttribute("aria-expanded", part === "found");
  if (part !== "found") setActive(-1);
  byId("picker-note").textContent = note;
  byId("picker-note").hidden = !note;
  found.scrollTop = 0;
}

function makeOption(label, number) {
  const mark = element("span", { class: "mark" }, actions.isPicked(label.label) ? icon("check") : "");
  const synonym = label.matched && label.matched !== label.label;
  const name = element(
    "span",
    { class: "name" },
    renderName(label.label),
    synonym ? element("span", { class: "synonym" }, say("picker.synonym", { name: label.matched })) : null,
    renderPath(label.path),
  );
  const option = element(
    "div",
    { role: "option", id: `option-${number}`, "aria-selected": "false" },
    name,
    mark,
    element("span", { class: "count", title: say("labels.samples") }, formatNumber(label.n_samples)),
  );
  option.pick = () => {
    actions.pick(label);
    mark.replaceChildren(actions.isPicked(label.label) ? icon("check") : "");
  };
  option.addEventListener("click", () => {
    setActive(number);
    option.pick();
  });
  return option;
}

function setActive(number) {
  active = number;
  [...found.children].forEach((option, i) => option.setAttribute("aria-selected", i === number));
  for (const node of [query, found]) {
    if (number < 0) node.removeAttribute("aria-activedescendant");
    else node.setAttribute("aria-activedescendant", `option-${number}`);
  }
  found.children[number]?.scrollIntoView({ block: "nearest" });
}

function handleKey(event) {
  const listed = !found.hidden && found.children.length;
  if (event.key === "Enter") event.preventDefault();
  if (event.key === "Enter" && listed) found.children[active].pick();
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  if (listed) setActive(Math.max(0, Math.min(active + (event.key === "ArrowDown" ? 1 : -1), found.children.length - 1)));
  else if (event.key === "ArrowDown") byId("tree").querySelector("[tabindex='0']")?.focus();
}
