// The first tab: the ranked labels of a text, and what the user decides about them.

import { predict, sendFeedback } from "./api.js";
import { Decisions } from "./decisions.js";
import { byId, element, icon, openDialog } from "./dom.js";
import { clearHighlight, getText, highlight, showUnknown } from "./editor.js";
import { FORMATS } from "./formats.js";
import { showError, showStatus } from "./messages.js";
import { focusRow, lookAtFirst, renderRanking, startRanking } from "./ranking.js";
import { say } from "./texts.js";
import { isProposed, renderThreshold, setRanking, startThreshold } from "./threshold.js";

const COUNT = 20; // labels to show
const UNKNOWN = 0.5; // share of unknown words from which on a text is unlike the training data

let card = null; // of the model
let result = null; // {text, version, labels, warning} of the last prediction
let decisions = new Decisions();
let running = null; // the request that is under way
const earlier = new Map(); // decisions of this visit, by model and text

export function startTag() {
  startThreshold(() => renderTag(false));
  startRanking({ decide, explain });
  byId("undo").addEventListener("click", undo);
  byId("accept-all").addEventListener("click", acceptAll);
  byId("copy").addEventListener("click", copy);
  byId("feedback").addEventListener("click", send);
  byId("consent").addEventListener("change", () => renderTag(false));
}

/** Use another model: what was shown was said by the last one. @returns whether something was shown */
export function setModel(chosen) {
  const shown = result !== null;
  card = chosen;
  clearResult();
  return shown;
}

function clearResult() {
  running?.abort();
  result = null;
  decisions = new Decisions();
  clearHighlight();
  setRanking([], card.score);
  renderTag(true);
}

/** Predict the labels of the text. @param focus Whether to move the focus to the first label. */
export async function tag(focus) {
  const text = getText();
  if (!text.trim()) return clearResult();
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  byId("panel-tag").setAttribute("aria-busy", "true");
  try {
    const content = await predict({ texts: [text], model: card.name, k: COUNT, explain: true }, signal);
    showResult(text, content);
    if (focus && !isStale()) focusRow(0);
    else lookAtFirst();
  } catch (error) {
    showError(error);
  } finally {
    if (running.signal === signal) byId("panel-tag").removeAttribute("aria-busy");
  }
}

function showResult(text, { version, results: [{ labels, unknown, warning }] }) {
  const key = JSON.stringify([card.name, text]);
  if (!earlier.has(key)) earlier.set(key, new Decisions());
  decisions = earlier.get(key);
  result = { text, version, labels, unknown, warning };
  showUnknown(unknown);
  setRanking(labels, card.score);
  renderTag(true);
}

/** Whether the text has been edited since: then the labels, and positions of words, are those of the text before. */
const isStale = () => result !== null && getText() !== result.text;

export function renderStale() {
  byId("stale").hidden = !isStale();
}

function explain(label, scroll) {
  if (result && !isStale()) highlight(label, scroll);
}

function decide(name, state) {
  decisions.toggle(name, decisions.get(name) === "added" ? "added" : state); // what was added is taken back by either button
  renderTag(false);
}

export function undo() {
  decisions.undo();
  renderTag(false);
}

const undecided = () => result.labels.filter((one) => isProposed(one) && !decisions.get(one.label));

function acceptAll() {
  decisions.set(
    undecided().map((one) => one.label),
    "accepted",
  );
  renderTag(false);
}

/** Add a label that the user has picked; if it was proposed, accept it. The same again takes it back. */
export function pick(label) {
  const picked = isPicked(label.label);
  const proposed = result.labels.some((one) => one.label === label.label);
  if (picked) decisions.set([label.label], "");
  else if (proposed) decisions.set([label.label], "accepted");
  else decisions.add(label);
  renderTag(false);
  if (!picked && !proposed) explainAdded(label, decisions);
}

/** Ask for the score of a label that the model has not proposed, and for its words; 400 if the model knows only its name. */
async function explainAdded(label, current) {
  try {
    const content = await predict({ texts: [result.text], model: card.name, k: 1, allow: [label.label], explain: true });
    current.added.set(label.label, { ...label, ...content.results[0].labels[0] });
    renderTag(false);
  } catch (error) {
    if (error.status !== 400) showError(error);
  }
}

export const canPick = () => result !== null;
export const isPicked = (name) => ["accepted", "added"].includes(decisions.get(name));

/** The labels that the user has accepted or added, in the order in which they are shown. */
const chosen = () => listEntries().filter((one) => isPicked(one.label));

function listEntries() {
  const added = decisions.names("added").map((name) => ({ ...decisions.added.get(name), state: "added", proposed: true }));
  const ranked = result.labels.map((one) => ({ ...one, state: decisions.get(one.label), proposed: isProposed(one) }));
  return [...added.reverse(), ...ranked];
}

/** @param fresh Whether it is another text. */
export function renderTag(fresh) {
  renderStale();
  renderThreshold();
  renderRanking(result ? listEntries() : [], card.score, fresh);
  const counts = Object.fromEntries(
    ["accepted", "rejected", "added"].map((state) => [state, decisions.names(state).length]),
  );
  const decided = counts.accepted + counts.rejected + counts.added > 0;
  const open = result ? undecided().length : 0;
  byId("labels-empty").hidden = Boolean(result?.labels.length);
  byId("labels-empty").textContent = say(
    card.reads === "vectors" ? "labels.vectors" : result ? "labels.none" : "labels.empty",
  );
  const warning = describeUnlike();
  byId("warning").hidden = !warning;
  byId("warning").replaceChildren(icon("warning"), warning);
  byId("accept-all-text").textContent = say("labels.accept", { n: open });
  byId("accept-all").disabled = !open;
  byId("add-label").disabled = byId("actions").hidden = !result;
  byId("decided").replaceChildren(
    renderCount("accepted", "check", counts),
    renderCount("rejected", "cross", counts),
    renderCount("added", "plus", counts),
  );
  byId("undo").disabled = !decisions.past.length;
  byId("copy").disabled = !(counts.accepted + counts.added);
  byId("feedback").disabled = !decided || decisions.sent === JSON.stringify(makeFeedback());
}

/** A warning if the text is unlike the training data, in the language of the page where that is possible. */
function describeUnlike() {
  const { n_words: words, n_unknown: unknown } = result?.unknown ?? {}; // null if the features of the model are not words
  return unknown > UNKNOWN * words ? say("warning.unlike", { unknown, words }) : (result?.warning ?? "");
}

function renderCount(state, name, counts) {
  const text = say(`decided.${state}`, { n: counts[state] });
  return element(
    "span",
    { class: state, title: text },
    icon(name),
    element("span", { "aria-hidden": "true" }, String(counts[state])),
    element("span", { class: "unseen" }, text),
  );
}

async function copy() {
  const labels = chosen();
  const content = FORMATS[byId("copy-format").value](labels);
  try {
    await navigator.clipboard.writeText(content);
    showStatus(say("copy.done", { n: labels.length }));
  } catch {
    openDialog(byId("copy-dialog")); // browsers refuse the clipboard to pages without HTTPS
    byId("copy-text").value = content;
    byId("copy-text").select();
  }
}

/** The decisions; with the text only if the user has agreed. */
function makeFeedback() {
  const consent = byId("consent").checked;
  const names = Object.fromEntries(["accepted", "rejected", "added"].map((state) => [state, decisions.names(state)]));
  const shown = result.labels.map((one) => one.label);
  const content = { model: card.name, version: result.version, consent, shown, ...names };
  if (consent) content.text = result.text;
  return content;
}

async function send() {
  const content = makeFeedback();
  const current = decisions;
  try {
    await sendFeedback(content);
    current.sent = JSON.stringify(content);
    showStatus(say(content.consent ? "feedback.done" : "feedback.done.without"));
    renderTag(false);
  } catch (error) {
    showError(error);
  }
}
