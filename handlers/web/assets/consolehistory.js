// Follows the history: while the page is visible, it asks for new events every few seconds. These requests do not extend
// the session.

import { inOwnZone, show } from "./console.js";

const every = 5000; // milliseconds
const most = 500; // rows that are kept

const button = document.querySelector("#follow");
const rows = document.querySelector("#events tbody");
const older = document.querySelector("#older");

const follow = () => {
  const said = document.querySelector("#following [role=status]");
  const from = new URL(button.dataset.new, location);
  let timer = 0;
  let asking; // the question under way

  const followed = () => button.getAttribute("aria-pressed") === "true";

  const stop = () => {
    button.setAttribute("aria-pressed", "false");
    clearTimeout(timer);
    asking?.abort();
  };

  // A gap means that events may be missing between the new rows and the shown ones. The shown rows are then removed, and the
  // link leads to the others.
  const add = (text, gap) => {
    const part = document.createElement("template");
    part.innerHTML = text; // of our own service
    inOwnZone(part.content);
    const count = part.content.querySelectorAll("tr").length;
    if (gap) {
      rows.replaceChildren();
    }
    rows.prepend(part.content);
    let before = gap;
    while (rows.rows.length > most) {
      rows.lastElementChild.remove();
      before = rows.lastElementChild.dataset.sequence;
    }
    if (before) {
      const to = new URL(location);
      to.searchParams.set("before", before);
      older.querySelector("a").href = to;
      older.hidden = false;
    }
    show("#events", rows.rows.length > 0);
    show("#no-events", rows.rows.length === 0);
    if (count > 0) {
      said.textContent = `${said.dataset.arrived} ${count}${gap ? "+" : ""}`;
    }
  };

  const ask = async () => {
    clearTimeout(timer);
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const response = await fetch(from, { headers: { Accept: "application/json" }, signal });
      if (response.status === 401 || response.status === 403) {
        stop();
        said.textContent = "";
        show("[data-ended]", true);
        return;
      }
      if (!response.ok) {
        throw new Error(response.status);
      }
      if (response.status === 200) {
        const { data } = await response.json();
        from.searchParams.set("after", data.after);
        add(data.rows, data.older);
      } else if (said.textContent === said.dataset.late) {
        said.textContent = said.dataset.following;
      }
    } catch {
      if (signal.aborted) {
        return;
      }
      said.textContent = said.dataset.late; // and goes on asking
    }
    timer = setTimeout(ask, every);
  };

  button.addEventListener("click", () => {
    if (followed()) {
      stop();
      said.textContent = said.dataset.stopped;
      return;
    }
    button.setAttribute("aria-pressed", "true");
    show("[data-ended]", false);
    said.textContent = said.dataset.following;
    ask();
  });

  document.addEventListener("visibilitychange", () => {
    if (!followed()) {
      return;
    }
    if (document.visibilityState === "visible") {
      ask();
    } else {
      clearTimeout(timer);
      asking?.abort();
    }
  });

  document.querySelector("#following").classList.remove("waiting");
};

if (button) {
  follow();
}
