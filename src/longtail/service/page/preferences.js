// Language and theme, kept in the browser for the next visit.

import { byId, setOptions } from "./dom.js";
import { LANGUAGES, loadTexts, preferredLanguage } from "./texts.js";

/** A browser may refuse to keep anything: then choices last until the page is closed. */
function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // nothing to do: the choice is used, but not kept
  }
}

/** @param onLanguage Called after the language has changed. */
export async function startPreferences(onLanguage) {
  const theme = byId("theme");
  theme.value = recall("theme") ?? "";
  const setTheme = () => document.documentElement.setAttribute("data-theme", theme.value);
  theme.addEventListener("change", () => {
    keep("theme", theme.value);
    setTheme();
  });
  setTheme();

  const language = byId("language");
  setOptions(language, Object.entries(LANGUAGES));
  language.value = preferredLanguage(recall("language"));
  language.addEventListener("change", async () => {
    keep("language", language.value);
    await loadTexts(language.value);
    onLanguage();
  });
  await loadTexts(language.value);
}
