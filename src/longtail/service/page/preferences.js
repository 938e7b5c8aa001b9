// Language and theme, kept in the browser for the next visit.

import { byId, setOptions } from "./dom.js";
import { LANGUAGES, loadTexts, preferredLanguage } from "./texts.js";

/** @param onLanguage Called after the language has changed. */
export async function startPreferences(onLanguage) {
  const theme = byId("theme");
  theme.value = localStorage.getItem("theme") ?? "";
  const setTheme = () => document.documentElement.setAttribute("data-theme", theme.value);
  theme.addEventListener("change", () => {
    localStorage.setItem("theme", theme.value);
    setTheme();
  });
  setTheme();

  const language = byId("language");
  setOptions(language, Object.entries(LANGUAGES));
  language.value = preferredLanguage(localStorage.getItem("language"));
  language.addEventListener("change", async () => {
    localStorage.setItem("language", language.value);
    await loadTexts(language.value);
    onLanguage();
  });
  await loadTexts(language.value);
}
