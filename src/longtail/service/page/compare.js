// The second tab: the labels of two models for one text, in three groups.

import { predict } from "./api.js";
import { byId, element, setOptions } from "./dom.js";
import { getText } from "./editor.js";
import { showError } from "./messages.js";
import { renderName, renderPath } from "./ranking.js";
import { formatScore, say } from "./texts.js";

const COUNTS = [5, 10, 20, 50];

let models = [];
let left = null; // cards of the two models
let right = null;
let result = null; // {both, left, right} lists of labels
let running = null;

export function startCompare(cards) {
  models = cards;
  setOptions(
    byId("compare-count"),
    COUNTS.map((count) => [String(count), String(count)]),
  );
  byId("compare-count").value = "10";
  for (const id of ["other-model", "compare-count"]) {
    byId(id).addEventListener("change", () => {
      right = models.find((one) => one.name === byId("other-model").value);
      if (result) compare();
    });
  }
}

/** Use another model on the left; the other choices are on the right. @returns whether something was shown */
export function setLeft(chosen) {
  const shown = result !== null;
  left = chosen;
  const others = models.filter((one) => one.name !== left.name && one.reads === "texts");
  setOptions(
    byId("other-model"),
    others.map((one) => [one.name, one.name]),
  );
  right = others.find((one) => one.name === byId("other-model").value) ?? null;
  clearComparison();
  return shown;
}

function clearComparison() {
  running?.abort();
  result = null;
  renderCompare();
}

export async function compare() {
  const text = getText();
  if (!text.trim() || !right) return clearComparison();
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const k = Number(byId("compare-count").value);
  byId("panel-compare").setAttribute("aria-busy", "true");
  try {
    const [one, other] = await Promise.all(
      [left, right].map((model) => predict({ texts: [text], model: model.name, k }, signal)),
    );
    result = divide(one.results[0].labels, other.results[0].labels);
    renderCompare();
  } catch (error) {
    showError(error);
  } finally {
    if (running.signal === signal) byId("panel-compare").removeAttribute("aria-busy");
  }
}

/** Labels of both lists, of the first only, and of the second only; each in the order of its list. */
export function divide(first, second) {
  const scores = new Map(second.map((one) => [one.label, one.score]));
  const names = new Set(first.map((one) => one.label));
  return {
    both: first.filter((one) => scores.has(one.label)).map((one) => ({ ...one, other: scores.get(one.label) })),
    left: first.filter((one) => !scores.has(one.label)),
    right: second.filter((one) => !names.has(one.label)),
  };
}

export function renderCompare() {
  const note = byId("comparison-empty");
  byId("comparison").replaceChildren();
  byId("comparison").hidden = !result;
  note.hidden = Boolean(result);
  note.textContent = say(right ? "compare.empty" : "compare.alone");
  for (const id of ["other-model", "compare-count"]) byId(id).disabled = !right;
  if (!result) return;
  byId("comparison").append(
    renderGroup("left", say("compare.only", { model: left.name }), result.left, (one) => [[one.score, left]]),
    renderGroup("both", say("compare.both"), result.both, (one) => [
      [one.score, left],
      [one.other, right],
    ]),
    renderGroup("right", say("compare.only", { model: right.name }), result.right, (one) => [[one.score, right]]),
  );
}

/** @param scores Returns the scores of a label, each with the model that gave it. */
function renderGroup(name, title, labels, scores) {
  const items = labels.map((one) =>
    element(
      "li",
      {},
      element("span", { class: "name" }, renderName(one.label), renderPath(one.path)),
      element("span", { class: "scores" }, ...scores(one).map(([score, model]) => renderScore(score, model))),
    ),
  );
  const list = items.length ? element("ol", {}, ...items) : element("p", { class: "empty" }, say("compare.none"));
  return element(
    "section",
    { class: `card group ${name}` },
    element("h3", {}, element("span", {}, title), element("span", { class: "tag" }, String(labels.length))),
    list,
  );
}

function renderScore(score, model) {
  const side = model === left ? "left" : "right";
  const meter = model.score === "probability" ? element("span", { class: "meter", "--value": score }) : null;
  return element(
    "span",
    { class: `side ${side}`, title: model.name },
    meter,
    element("span", { class: "value" }, formatScore(score, model.score)),
  );
}
