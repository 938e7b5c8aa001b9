// The threshold: which of the ranked labels are proposed, and how many of them can be expected to be right.

import { byId } from "./dom.js";
import { formatPercent, formatScore, say } from "./texts.js";

const STEP = 0.01; // of probabilities

const slider = byId("threshold");
let labels = []; // ranked, the best first
let kind = "probability";
let automatic = true;

/** @param onMove Called when the threshold has changed. */
export function startThreshold(onMove) {
  slider.addEventListener("input", () => {
    automatic = false;
    renderThreshold();
    onMove();
  });
  byId("threshold-auto").addEventListener("click", () => {
    automatic = !automatic;
    if (automatic) slider.value = chooseThreshold();
    renderThreshold();
    onMove();
  });
}

/** Show new labels. The user's threshold stays; without one, it is chosen for this text. */
export function setRanking(ranked, scoreKind) {
  const scores = ranked.map((one) => one.score);
  const bounds = scoreKind === "probability" ? [0, 1] : [Math.min(...scores, 0), Math.max(...scores, 0)];
  if (scoreKind !== kind) automatic = true; // a probability is no threshold for margins
  labels = ranked;
  kind = scoreKind;
  [slider.min, slider.max] = bounds;
  slider.step = kind === "probability" ? STEP : "any";
  if (automatic) slider.value = chooseThreshold();
  renderThreshold();
}

export const isProposed = (label) => label.score >= Number(slider.value);

/** The threshold with the largest expected F1, which proposes at least one label; for margins zero, or the best label. */
function chooseThreshold() {
  if (!labels.length) return 0.5;
  if (kind !== "probability") return Math.min(0, labels[0].score);
  const total = labels.reduce((sum, one) => sum + one.score, 0);
  let best = 0,
    cut = 0,
    sum = 0;
  labels.forEach(({ score }, i) => {
    sum += score;
    const f1 = (2 * sum) / (i + 1 + total);
    if (f1 > best) [best, cut] = [f1, i];
  });
  return Math.floor(labels[cut].score / STEP + 1e-6) * STEP;
}

/** The share of right labels to expect, by the calibrated probabilities. */
function expectPrecision(proposed) {
  const last = proposed.at(-1);
  return (
    last.expected_precision ??
    (kind === "probability" ? proposed.reduce((sum, one) => sum + one.score, 0) / proposed.length : null)
  );
}

export function renderThreshold() {
  const proposed = labels.filter(isProposed);
  const shown = formatScore(Number(slider.value), kind);
  const precision = proposed.length ? expectPrecision(proposed) : null;
  byId("threshold-value").textContent = shown;
  slider.setAttribute("aria-valuetext", shown);
  slider.disabled = byId("threshold-auto").disabled = !labels.length;
  byId("threshold-auto").setAttribute("aria-pressed", automatic);
  const parts = labels.length ? [say("expected.labels", { n: proposed.length })] : [say("expected.none")];
  if (precision !== null) parts.push(say("expected.precision", { precision: formatPercent(precision) }));
  byId("expected").textContent = parts.join(" · ");
}
