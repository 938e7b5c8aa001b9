// The texts of the page in the language of the user. To add a language: a file like en.json, and a line here.

export const LANGUAGES = { en: "English", de: "Deutsch" };

let language = "en";
let locale = "en"; // for numbers and dates: the language as used in the country of the user
let texts = {};

/** The language to start with: the chosen one, else one that the browser prefers, else English. */
export function preferredLanguage(chosen) {
  const wanted = [chosen, ...navigator.languages.map((code) => code.split("-")[0])];
  return wanted.find((code) => code in LANGUAGES) ?? "en";
}

export async function loadTexts(code) {
  const response = await fetch(new URL(`./${code}.json`, import.meta.url));
  texts = await response.json();
  language = code;
  locale = navigator.languages.find((one) => one.split("-")[0] === code) ?? code;
  document.documentElement.lang = code;
  translate(document);
}

/** The text of a key. Values replace `{name}`; numbers are formatted; with `n`, the plural form of the language is used. */
export function say(key, values = {}) {
  const form = "n" in values ? new Intl.PluralRules(language).select(values.n) : "";
  const text = texts[`${key}.${form}`] ?? texts[`${key}.other`] ?? texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? formatNumber(values[name]) : values[name],
  );
}

export function formatNumber(value, digits = 0) {
  return new Intl.NumberFormat(locale, { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);
}

export function formatPercent(value) {
  const digits = value > 0 && value < 0.01 ? 1 : 0;
  return new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: digits }).format(value);
}

export function formatDate(date) {
  return new Intl.DateTimeFormat(locale, { dateStyle: "medium" }).format(new Date(date));
}

/** A score as people read it: a probability in percent, other scores as numbers. */
export function formatScore(score, kind) {
  return kind === "probability" ? formatPercent(score) : formatNumber(score, 2);
}

/** Set the texts of the elements that name one. */
export function translate(root) {
  for (const node of root.querySelectorAll("[data-text]")) node.textContent = say(node.dataset.text);
  for (const node of root.querySelectorAll("[data-placeholder]")) node.placeholder = say(node.dataset.placeholder);
  for (const node of root.querySelectorAll("[data-label]")) {
    node.setAttribute("aria-label", say(node.dataset.label));
    if (node.tagName === "BUTTON") node.title = say(node.dataset.label);
  }
}
