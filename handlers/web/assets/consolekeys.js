// Buttons that tick the scopes which a usual kind of program needs, and no others.

import { all } from "./console.js";

const said = document.querySelector("[data-ticked]");
const missing = document.querySelector("#scopes-error");

// A scope is chosen now, so the error says nothing true any more.
const chosen = () => missing?.remove();
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
