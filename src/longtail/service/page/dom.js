// Make and fill elements. Texts become text nodes, never markup, so that no label or text can contain a script.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/**
 * Make an element: listeners are given as `onclick`, custom properties of CSS as `--name`. Null leaves an attribute out, and
 * so does false unless the attribute is a state (`aria-…`).
 */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for elements of SVG. */
export function drawn(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** One of the icons of index.html. */
export function icon(name) {
  return drawn("svg", { "aria-hidden": "true" }, drawn("use", { href: `#icon-${name}` }));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    const absent = value === false && !name.startsWith("aria-");
    if (value === null || value === undefined || absent) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Options of a select: pairs of value and text. The chosen value stays if it still exists. */
export function setOptions(select, pairs) {
  const chosen = select.value;
  select.replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
}

/** Open a modal dialog that its close button, Escape and a click outside of it close. */
export function openDialog(dialog) {
  if (!dialog.dataset.ready) {
    dialog.dataset.ready = "yes";
    dialog.querySelector(".close")?.addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }
  if (!dialog.open) dialog.showModal();
}
