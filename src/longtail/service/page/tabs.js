// The tabs. The address names the open one, so that it can be linked to.

import { byId } from "./dom.js";

const tabs = () => [...byId("tabs").children];

/** @param onOpen Called with the name of a tab when it opens. */
export function startTabs(onOpen) {
  for (const tab of tabs()) {
    tab.addEventListener("click", () => openTab(tab.id.slice(4), onOpen));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs().at((tabs().indexOf(tab) + step) % tabs().length);
      next.focus();
      next.click();
    });
  }
  addEventListener("hashchange", () => openTab(named(), onOpen));
  openTab(named(), onOpen);
}

const named = () => (byId(`tab-${location.hash.slice(1)}`) ? location.hash.slice(1) : "tag");

function openTab(name, onOpen) {
  for (const tab of tabs()) {
    const open = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", open);
    tab.tabIndex = open ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !open;
  }
  byId("text-panel").hidden = !["tag", "compare"].includes(name);
  document.body.dataset.tab = name;
  history.replaceState(null, "", `#${name}`);
  onOpen(name);
}
