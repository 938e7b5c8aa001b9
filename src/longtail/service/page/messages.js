// Short messages at the bottom of the window, which move nothing.

import { byId, element, icon } from "./dom.js";
import { say } from "./texts.js";

const SECONDS = { status: 4, error: 12 };

function show(kind, text, hint = "") {
  const close = element(
    "button",
    { class: "icon", "aria-label": say("close"), onclick: () => message.remove() },
    icon("cross"),
  );
  const message = element(
    "div",
    { class: `message ${kind}` },
    element("p", {}, text, hint && element("span", {}, hint)),
    close,
  );
  (document.querySelector("dialog[open]") ?? document.body).append(byId("messages")); // what is outside of a dialog is inert
  byId("messages").replaceChildren(message);
  setTimeout(() => message.remove(), 1000 * SECONDS[kind]);
}

export const showStatus = (text) => show("status", text);

/** Show why something failed. A request that the user cancelled has not failed. */
export function showError(error) {
  if (error.name === "AbortError") return;
  const offline = error instanceof TypeError; // what fetch throws if there is no answer
  show("error", offline ? say("error.offline") : error.message, offline ? "" : error.hint);
}
