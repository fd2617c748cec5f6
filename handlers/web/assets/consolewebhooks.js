// While a delivery is pending, the page asks for its state, for half a minute and only while the page is visible. These
// requests do not extend the session.

import { inOwnZone } from "./console.js";

const every = 2500; // milliseconds
const most = 12; // questions

const rows = document.querySelector("#rows");
const told = document.querySelector("#told");
let asked = 0;

// A button that has the focus keeps it.
const put = (text) => {
  const part = document.createElement("template");
  part.innerHTML = text; // of our own service
  inOwnZone(part.content);
  if (part.innerHTML.trim() === rows.innerHTML.trim()) {
    return;
  }
  const results = (of) => [...of.querySelectorAll("tr")].map((row) => [row.id, row.querySelector("[data-result]").textContent]);
  const former = new Map(results(rows));
  const [id, result] = results(part.content).find(([id, result]) => former.get(id) !== result) ?? [];
  const focused = rows.contains(document.activeElement) && document.activeElement.closest("tr").id;
  rows.replaceChildren(part.content);
  if (focused) {
    document.querySelector(`#${focused} button`)?.focus();
  }
  if (id) {
    told.textContent = `${told.dataset.changed} ${document.querySelector(`#${id} code`).textContent}: ${result}`;
  }
};

const ask = async () => {
  if (document.visibilityState !== "visible") {
    document.addEventListener("visibilitychange", ask, { once: true });
    return;
  }
  asked += 1;
  const response = await fetch(rows.dataset.now, { headers: { Accept: "application/json" } }).catch(() => undefined);
  if (response?.status === 401 || response?.status === 403) {
    told.textContent = told.dataset.late;
    return;
  }
  if (response?.ok) {
    const { data } = await response.json();
    put(data.rows);
    if (!data.failing) {
      document.querySelector("[data-failing]")?.remove();
    }
    if (!data.pending) {
      return;
    }
  }
  if (asked < most) {
    setTimeout(ask, every);
  } else {
    told.textContent = `${told.textContent} ${told.dataset.late}`.trim();
  }
};

setTimeout(ask, 1000);
