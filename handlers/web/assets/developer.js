// Tabs for samples in several languages, beside the buttons that copy. The choice holds for every page: it is stored in
// this browser. Without this script the samples stand one after the other.
import "./copy.js";

const stored = {
  get() {
    try {
      return localStorage.getItem("language");
    } catch {
      return null;
    }
  },
  set(language) {
    try {
      localStorage.setItem("language", language);
    } catch {
      // The choice holds for this page.
    }
  },
};

const groups = [...document.querySelectorAll(".tabs")].map((group, number) => {
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", group.dataset.label);
  const tabs = new Map();
  for (const panel of group.querySelectorAll("[data-language]")) {
    const { language } = panel.dataset;
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `tab-${number}-${language}`;
    tab.textContent = panel.querySelector("h3").textContent;
    tab.setAttribute("role", "tab");
    panel.id = `panel-${number}-${language}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", panel.id);
    tab.addEventListener("click", () => choose(language, tab));
    list.append(tab);
    tabs.set(language, { tab, panel });
  }
  list.addEventListener("keydown", (event) => {
    const all = [...tabs.values()].map(({ tab }) => tab);
    const at = all.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (at >= 0 && to !== undefined) {
      event.preventDefault();
      all[to % all.length].click();
    }
  });
  group.prepend(list);
  group.classList.add("chosen");
  return tabs;
});

function show(language) {
  for (const tabs of groups) {
    const shown = tabs.has(language) ? language : tabs.keys().next().value;
    for (const [name, { tab, panel }] of tabs) {
      panel.hidden = name !== shown;
      tab.setAttribute("aria-selected", name === shown);
      tab.tabIndex = name === shown ? 0 : -1;
    }
  }
}

// The tab stays in its place when samples above it become longer or shorter.
function choose(language, tab) {
  const before = tab.getBoundingClientRect().top;
  show(language);
  stored.set(language);
  window.scrollBy({ top: tab.getBoundingClientRect().top - before, behavior: "instant" });
  tab.focus({ preventScroll: true });
}

show(stored.get());

// Unfolds everything in and under the entry that the address names.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  for (const details of [target?.closest("details"), target?.querySelector("details"), target?.nextElementSibling]) {
    if (details instanceof HTMLDetailsElement) {
      details.open = true;
    }
  }
}

addEventListener("hashchange", unfold);
unfold();
