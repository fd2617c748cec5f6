// The finished file of a declaration is hashed here; its hash, size and type go into the form, and the file stays. Without
// this script they can be pasted.

import { show } from "./console.js";
import { onHash } from "./filehash.js";

const drop = document.querySelector("[data-hash]");

if (drop) {
  const form = drop.closest("form");
  const { sha256, sizeBytes, mimeType, generatedAt } = form.elements;

  const fill = (file, hash) => {
    const changed = new Date(file?.lastModified ?? NaN);
    sha256.value = hash ?? "";
    sizeBytes.value = file?.size ?? "";
    mimeType.value = file?.type ?? "";
    generatedAt.value = Number.isNaN(changed.getTime()) ? "" : changed.toISOString();
    show("[data-hashed]", file !== undefined);
    // A fragment is never sent, so the next page can show the name and the service does not learn it.
    form.action = form.action.split("#")[0] + (file ? "#" + encodeURIComponent(file.name) : "");
    if (file) {
      form.querySelector("[data-name]").textContent = file.name;
      form.querySelector("[data-sum]").textContent = hash;
    }
  };

  const { refuse, busy } = onHash(
    drop,
    (file, hash) => {
      if (file.size === 0) {
        refuse("empty");
        return;
      }
      refuse();
      fill(file, hash);
    },
    () => fill(),
  );

  form.addEventListener("submit", (event) => {
    if (busy() || sha256.value.trim() === "") {
      event.preventDefault();
      if (!busy()) {
        refuse("missing");
        drop.querySelector("input").focus();
      }
    }
  });
}

const chosen = document.querySelector("[data-file-name]");

if (chosen && location.hash) {
  try {
    chosen.querySelector("bdi").textContent = decodeURIComponent(location.hash.slice(1));
    chosen.classList.remove("waiting");
  } catch {
    // Somebody has changed the address.
  }
}
