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
