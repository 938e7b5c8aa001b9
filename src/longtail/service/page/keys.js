// Keys of the whole page, and the dialog that lists them.

import { byId, element, openDialog } from "./dom.js";
import { say } from "./texts.js";

const LISTED = [
  [["key.run"], "help.run"],
  [["j", "↓"], "help.next"],
  [["k", "↑"], "help.previous"],
  [["a"], "help.accept"],
  [["x"], "help.reject"],
  [["u"], "help.undo"],
  [["/"], "help.search"],
  [["?"], "help.help"],
  [["Esc"], "help.close"],
];

/** @param actions A function for each key; "run" for Ctrl+Enter, which also works while the user types. */
export function startKeys(actions) {
  const named = { ...actions, "?": openHelp };
  byId("help-button").addEventListener("click", openHelp);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      actions.run();
    } else if (!isTyping(event) && named[event.key]) {
      event.preventDefault();
      named[event.key]();
    }
  });
}

function isTyping({ target, ctrlKey, metaKey, altKey }) {
  const field = target.closest("textarea, select, input:not([type=range]):not([type=checkbox])");
  return Boolean(field) || ctrlKey || metaKey || altKey;
}

function openHelp() {
  const rows = LISTED.map(([keys, about]) =>
    element(
      "div",
      {},
      element("dt", {}, ...keys.map((key) => element("kbd", {}, key.startsWith("key.") ? say(key) : key))),
      element("dd", {}, say(about)),
    ),
  );
  byId("keys").replaceChildren(...rows);
  openDialog(byId("help"));
}
