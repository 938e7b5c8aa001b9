// Start the page: texts, models, tabs, keys.

import { getModels, onTokenNeeded } from "./api.js";
import { renderBatch, setBatchModel, startBatch } from "./batch.js";
import { compare, renderCompare, setLeft, startCompare } from "./compare.js";
import { byId, openDialog, setOptions } from "./dom.js";
import { clearHighlight, renderEditor, startEditor } from "./editor.js";
import { startKeys } from "./keys.js";
import { showError } from "./messages.js";
import { renderFacts, renderModel, showModel } from "./models.js";
import { openPicker, startPicker } from "./picker.js";
import { startPreferences } from "./preferences.js";
import { decideActive, focusActive, moveBy } from "./ranking.js";
import { startTabs } from "./tabs.js";
import { canPick, isPicked, pick, renderStale, renderTag, setModel, startTag, tag, undo } from "./tag.js";
import { say } from "./texts.js";

let tab = "tag";
let models = [];

const card = () => models.find((one) => one.name === byId("model").value);

/** What the button below the text does: the first tab tags, the second compares. */
const run = () => (tab === "compare" ? compare() : tag(true));

/** The same for a text from a file, or another model; the focus stays where it is. */
const runQuietly = () => byId("run").disabled || (tab === "compare" ? compare() : tag(false));

function render() {
  renderFacts(card());
  renderEditor();
  renderTag(false);
  renderCompare();
  renderBatch();
  renderModel();
  renderRun();
}

function renderRun() {
  byId("run-text").textContent = say(tab === "compare" ? "tab.compare" : "tab.tag");
  byId("run").disabled = card().reads === "vectors";
}

function changeModel() {
  const shown = { tag: setModel(card()), compare: setLeft(card()) };
  setBatchModel(card());
  renderFacts(card());
  renderRun();
  if (shown[tab]) runQuietly();
  if (tab === "models") showModel(card());
}

function openTab(name) {
  tab = name;
  renderRun();
  if (name === "compare") clearHighlight(); // of the first tab
  if (name === "models") showModel(card());
}

/** Keep the browser from leaving the page for a file that is dropped anywhere else. */
function ignoreOtherDrops() {
  for (const name of ["dragover", "drop"]) {
    addEventListener(name, (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
  }
}

/** Ask for the token of the service until one is given. @param refused Whether the service did not take the last one. */
function askForToken(refused) {
  document.body.classList.remove("loading");
  byId("token").value = "";
  byId("token-refused").hidden = !refused;
  openDialog(byId("token-dialog"));
  return new Promise((resolve) => {
    byId("token-dialog").addEventListener("close", () => resolve(byId("token").value.trim()), { once: true });
  });
}

const onTag = (action) => () => tab === "tag" && action();
const search = onTag(() => canPick() && openPicker(card()));

async function start() {
  onTokenNeeded(askForToken);
  await startPreferences(render);
  const found = await getModels();
  models = found.models;
  setOptions(
    byId("model"),
    models.map((one) => [one.name, one.name]),
  );
  byId("model").value = found.default;
  byId("model").addEventListener("change", changeModel);
  startEditor(renderStale, runQuietly);
  startTag();
  startPicker({ pick, isPicked });
  startCompare(models);
  startBatch();
  ignoreOtherDrops();
  changeModel();
  renderEditor();
  startTabs(openTab);
  byId("run").addEventListener("click", run);
  byId("add-label").addEventListener("click", search);
  byId("picker").addEventListener("close", focusActive);
  startKeys({
    run: () => byId("text-panel").hidden || byId("run").click(),
    j: onTag(() => moveBy(1)),
    k: onTag(() => moveBy(-1)),
    a: onTag(() => decideActive("accepted")),
    x: onTag(() => decideActive("rejected")),
    u: onTag(undo),
    "/": search,
  });
}

start()
  .catch(showError)
  .finally(() => document.body.classList.remove("loading"));
