// Buttons that tick the scopes which a usual kind of program needs, and no others. While one of the scopes needs a
// company, the only company is selected.

import { all } from "./console.js";

const said = document.querySelector("[data-ticked]");
const missing = document.querySelector("#scopes-error");
const without = document.querySelector("#withoutCompany");
const [only, ...others] = all('[name="companies"]');

const needsCompany = () => !without.checked && document.querySelector('[data-group="Registering"] :checked') !== null;
let needed = needsCompany();
let added = false; // whether the script selected the company, and not the person

// Act only when the need begins or ends: in between, the person's own choice stays.
const selectOnly = () => {
  if (only === undefined || others.length > 0 || needed === needsCompany()) {
    return;
  }
  needed = !needed;
  if (needed !== only.checked && (needed || added)) {
    only.checked = added = needed;
  }
};
without.addEventListener("change", selectOnly);
only?.addEventListener("change", () => {
  added = false;
});

// A scope is chosen now, so the error says nothing true any more.
const chosen = () => {
  missing?.remove();
  selectOnly();
};
for (const box of all('[name="scopes"]')) {
  box.addEventListener("change", chosen);
}

for (const button of all("[data-presets] button")) {
  button.addEventListener("click", () => {
    const names = [];
    for (const box of all('[name="scopes"]')) {
      const { ticks, ticksGroup } = button.dataset;
      box.checked = ticks ? ticks.split(" ").includes(box.value) : box.closest("[data-group]").dataset.group === ticksGroup;
      if (box.checked) {
        names.push(box.value);
      }
    }
    chosen();
    said.textContent = `${said.dataset.ticked} ${names.join(", ")}`;
  });
}

document.querySelector("[data-presets]").classList.remove("waiting");
