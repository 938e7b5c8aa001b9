// The hierarchy of labels, loaded level by level when it is opened. Keys as in other trees: arrows, Home, End, Enter.

import { listChildren } from "./api.js";
import { element, icon } from "./dom.js";
import { showError } from "./messages.js";
import { renderName } from "./ranking.js";
import { formatNumber, say } from "./texts.js";

const LIMIT = 200; // labels of a level at a time

/** Show the roots. @param onPick Called with the label that is picked. @param isPicked Whether it is marked. */
export async function openTree(tree, model, onPick, isPicked) {
  tree.replaceChildren();
  tree.onkeydown = (event) => handleKey(tree, event);
  await loadLevel({ tree, model, onPick, isPicked }, tree, { path: [] }, 1);
  visibleItems(tree)[0]?.setAttribute("tabindex", 0);
}

/** Load the next labels below a parent, with an item for more at the end. */
async function loadLevel(context, group, parent, level) {
  const query = { model: context.model, offset: group.querySelectorAll(":scope > .node").length, limit: LIMIT };
  if (parent.label) query.parent = parent.label;
  try {
    const { labels, total } = await listChildren(query);
    const path = parent.label ? [...parent.path, parent.label] : [];
    const items = labels.map((one) => makeItem(context, { ...one, path: one.path ?? path }, level));
    const rest = total - query.offset - items.length;
    const hadFocus = group.lastElementChild === document.activeElement;
    group.querySelector(":scope > .more")?.remove();
    group.append(...items);
    if (rest > 0 && items.length) group.append(makeMore(context, group, parent, level, rest));
    if (hadFocus) items[0]?.focus();
  } catch (error) {
    showError(error);
  }
}

function makeItem(context, label, level) {
  const branch = label.n_children > 0;
  const mark = element("span", { class: "mark" }, context.isPicked(label.label) ? icon("check") : "");
  const arrow = element("span", {
    class: "arrow",
    "aria-hidden": "true",
    onclick: (event) => {
      event.stopPropagation();
      toggle(item);
    },
  });
  if (branch) arrow.append(icon("right"));
  const row = element(
    "span",
    { class: "node-row" },
    arrow,
    renderName(label.label),
    mark,
    element("span", { class: "count", title: say("labels.samples") }, formatNumber(label.n_samples)),
  );
  const item = element(
    "div",
    {
      role: "treeitem",
      class: "node",
      tabindex: -1,
      "aria-level": level,
      "aria-label": label.label,
      "--level": level,
      "aria-expanded": branch ? "false" : null,
    },
    row,
  );
  row.addEventListener("click", () => {
    item.focus();
    item.pick();
  });
  item.addEventListener("focus", () => keepFocus(context.tree, item));
  item.pick = () => {
    context.onPick(label);
    mark.replaceChildren(context.isPicked(label.label) ? icon("check") : "");
  };
  item.open = async () => {
    const group = element("div", { role: "group" });
    item.append(group);
    item.setAttribute("aria-busy", "true");
    await loadLevel(context, group, label, level + 1);
    item.removeAttribute("aria-busy");
  };
  return item;
}

function makeMore(context, group, parent, level, rest) {
  const more = element(
    "div",
    { role: "treeitem", class: "more", tabindex: -1, "aria-level": level, "--level": level },
    say("tree.more", { n: Math.min(rest, LIMIT), rest }),
  );
  more.pick = () => loadLevel(context, group, parent, level);
  more.addEventListener("click", () => {
    more.focus();
    more.pick();
  });
  more.addEventListener("focus", () => keepFocus(context.tree, more));
  return more;
}

function toggle(item) {
  if (!item.hasAttribute("aria-expanded")) return;
  const open = item.getAttribute("aria-expanded") === "false";
  item.setAttribute("aria-expanded", open);
  if (open && !item.querySelector(":scope > [role=group]")) item.open();
}

function keepFocus(tree, item) {
  tree.querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
  item.setAttribute("tabindex", 0);
}

const visibleItems = (tree) => [...tree.querySelectorAll("[role=treeitem]")].filter((item) => item.checkVisibility());

function handleKey(tree, event) {
  const items = visibleItems(tree);
  const item = document.activeElement;
  const place = items.indexOf(item);
  const expanded = item.getAttribute("aria-expanded");
  const parent = item.parentElement.closest("[role=treeitem]");
  const moves = {
    ArrowDown: () => items[place + 1]?.focus(),
    ArrowUp: () => items[place - 1]?.focus(),
    Home: () => items[0].focus(),
    End: () => items.at(-1).focus(),
    ArrowRight: () => (expanded === "true" ? items[place + 1]?.focus() : toggle(item)),
    ArrowLeft: () => (expanded === "true" ? toggle(item) : parent?.focus()),
    Enter: () => item.pick(),
    " ": () => item.pick(),
  };
  if (place < 0 || !moves[event.key]) return;
  event.preventDefault();
  moves[event.key]();
}
