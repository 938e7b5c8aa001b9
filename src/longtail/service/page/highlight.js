// The words of a text that speak for a label: from parts with weights to marks behind the text.

import { element } from "./dom.js";

const SHADES = [0.2, 0.45, 0.75]; // of the largest weight: what is below the first is not marked

/** The positions in a JavaScript string (UTF-16) of positions that count characters, as Python does. */
export function toUnits(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (position) => position;
  const units = [0];
  for (const character of text) units.push(units.at(-1) + character.length);
  return (position) => units[Math.min(position, units.length - 1)];
}

/** Pieces of a text, in order, each with its shade: 0 for what is no evidence, up to 3 for the strongest. */
export function shade(text, parts) {
  const units = toUnits(text);
  const weights = new Float32Array(text.length);
  for (const { start, end, weight } of parts) {
    if (weight > 0) for (let i = units(start); i < units(end); i++) weights[i] += weight;
  }
  const largest = weights.reduce((most, weight) => Math.max(most, weight), 0);
  const level = (i) => SHADES.filter((share) => weights[i] > 0 && weights[i] >= share * largest).length;
  const pieces = [];
  for (let start = 0, i = 1; i <= text.length; i++) {
    if (i < text.length && level(i) === level(start)) continue;
    pieces.push({ text: text.slice(start, i), level: level(start) });
    start = i;
  }
  return pieces;
}

/** Nodes for pieces: marks and plain text. */
export function renderPieces(pieces) {
  return pieces.map(({ text, level }) =>
    level ? element("mark", { class: `level${level}` }, text) : document.createTextNode(text),
  );
}

/** The distinct words of the parts, those with the largest sum of weights first. */
export function listWords(text, parts, limit = 8) {
  const units = toUnits(text);
  const sums = new Map();
  for (const { start, end, weight } of parts) {
    const word = text.slice(units(start), units(end)).toLowerCase().trim();
    if (word) sums.set(word, (sums.get(word) ?? 0) + weight);
  }
  const positive = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]);
  const strong = positive.filter(([, sum]) => sum >= SHADES[0] * positive[0][1]);
  return strong.slice(0, limit).map(([word]) => word);
}
