// The fourth tab: the card of the model. And what the header says about it.

import { getModel } from "./api.js";
import { byId, element } from "./dom.js";
import { showError } from "./messages.js";
import { plotCalibration } from "./plot.js";
import { renderName } from "./ranking.js";
import { formatDate, formatNumber, say } from "./texts.js";

const FIGURES = { precision: "figure.precision", recall: "figure.recall", "labels per text": "figure.size" }; // of sets

let details = null; // of the model that is shown
let wanted = null; // card of the model to show

/** Facts that fit in a line. */
export function renderFacts(card) {
  const facts = [card.method, say("facts.labels", { n: card.n_labels }), say("facts.samples", { n: card.n_samples })];
  if (card.trained) facts.push(say("facts.trained", { date: formatDate(card.trained) }));
  facts.push(say("facts.version", { version: card.version }));
  byId("model-facts").replaceChildren(...facts.map((fact) => element("span", {}, fact)));
}

export async function showModel(card) {
  wanted = card;
  if (details?.name !== card.name || details?.version !== card.version) {
    try {
      const found = await getModel(card.name);
      if (wanted !== card) return; // another model was chosen meanwhile
      details = found;
    } catch (error) {
      showError(error);
      return;
    }
  }
  renderModel();
}

export function renderModel() {
  if (!details) return;
  byId("model-card").replaceChildren(
    renderSection("card.data", renderData()),
    renderSection("card.figures", renderFigures()),
    renderSection(
      "card.calibration",
      details.calibration?.bins.length ? renderCalibration() : renderNote("card.calibration.none"),
    ),
    renderSection(
      "card.settings",
      renderPairs(Object.entries(details.settings).map(([name, value]) => [name, writeSetting(value)])),
    ),
    renderSection("card.decisions", renderLines(details.decisions, "card.decisions.none")),
    renderSection("card.history", renderLines(details.history, "card.history.none")),
    renderSection("card.largest", renderLargest()),
  );
}

function renderSection(key, ...children) {
  return element(
    "section",
    { class: `card ${key.replace(".", "-")}` },
    element("div", { class: "card-head" }, element("h2", {}, say(key))),
    ...children,
  );
}

const renderNote = (key) => element("p", { class: "empty" }, say(key));

function renderPairs(pairs) {
  return element(
    "dl",
    { class: "pairs" },
    ...pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

function renderData() {
  return renderPairs([
    [say("card.name"), details.name],
    [say("card.spec"), details.spec],
    [say("card.labels"), formatNumber(details.n_labels)],
    [say("card.samples"), formatNumber(details.n_samples)],
    [say("card.language"), details.language ?? say("card.unknown")],
    [say("card.trained"), details.trained ? formatDate(details.trained) : say("card.unknown")],
    [say("card.score"), say(`score.${details.score}`)],
    [say("card.hierarchy"), say(details.has_parents ? "yes" : "no")],
    [say("card.version"), details.version],
    [say("card.size"), say("card.megabytes", { size: formatNumber(details.size_mb, details.size_mb < 10 ? 1 : 0) })],
  ]);
}

function renderFigures() {
  const figures = Object.entries(details.figures);
  if (!figures.length) return renderNote("card.figures.none");
  return element(
    "figure",
    {},
    element(
      "dl",
      { class: "figures" },
      ...figures.map(([name, value]) =>
        element("div", {}, element("dt", {}, say(FIGURES[name] ?? name)), element("dd", {}, formatNumber(value, 1))),
      ),
    ),
    element("figcaption", {}, say("card.figures.about", { samples: details.held_out })),
  );
}

function renderCalibration() {
  const error = formatNumber(100 * details.calibration.ece, 1);
  return element(
    "figure",
    {},
    plotCalibration(details.calibration),
    element("figcaption", {}, say("card.calibration.about", { error })),
  );
}

function renderLargest() {
  const most = Math.max(...details.largest.map((one) => one.n_samples), 1);
  return element(
    "ol",
    { class: "bars" },
    ...details.largest.map((one) =>
      element(
        "li",
        {},
        renderName(one.label),
        element("span", { class: "meter", "--value": one.n_samples / most }),
        element("span", { class: "value" }, formatNumber(one.n_samples)),
      ),
    ),
  );
}

function renderLines(lines, none) {
  return lines.length
    ? element("ul", { class: "lines" }, ...lines.map((line) => element("li", {}, writeSetting(line))))
    : renderNote(none);
}

const writeSetting = (value) => (typeof value === "string" ? value : value === null ? "–" : JSON.stringify(value));
