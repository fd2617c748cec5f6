// The finished file of a declaration is hashed here; its hash, size and type go into the form, and the file stays. Without
// this script they can be pasted.

import { all, show } from "./console.js";
import { onHash } from "./filehash.js";

// The name of the file is in the fragment of the address, which is never sent, so the pages of a declaration can show it
// and the service does not learn it.
let name = "";
try {
  name = decodeURIComponent(location.hash.slice(1));
} catch {
  // Somebody has changed the address.
}

const keepName = (form, kept) => {
  const fragment = kept ? "#" + encodeURIComponent(kept) : "";
  form.action = form.action.split("#")[0] + fragment;
  for (const button of form.querySelectorAll("[formaction]")) {
    button.formAction = button.formAction.split("#")[0] + fragment;
  }
};

const drop = document.querySelector("[data-hash]");

if (drop) {
  const form = drop.closest("form");
  const { sha256, sizeBytes, mimeType, generatedAt } = form.elements;

  const ready = (named, hash) => {
    form.querySelector("[data-name]").textContent = named;
    form.querySelector("[data-sum]").textContent = hash;
    show("[data-hashed]", true);
  };

  const fill = (file, hash) => {
    const changed = new Date(file?.lastModified ?? NaN);
    sha256.value = hash ?? "";
    sizeBytes.value = file?.size ?? "";
    mimeType.value = file?.type ?? "";
    generatedAt.value = Number.isNaN(changed.getTime()) ? "" : changed.toISOString();
    show("[data-hashed]", false);
    keepName(form, file?.name);
    if (file) {
      ready(file.name, hash);
    }
  };

  // A file that was chosen before the form was refused, or before something was to be changed, is still chosen.
  const byHand = form.querySelector(".by-hand");
  if (name && sha256.value) {
    keepName(form, name);
    ready(name, sha256.value);
    byHand.open = byHand.querySelector("[aria-invalid]") !== null;
  }

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

// The links of a refused form lead to its fields. They do not change the fragment.
for (const link of all("#problem a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    document.querySelector(link.hash).focus();
  });
}

const chosen = document.querySelector("[data-file-name]");

if (chosen && name) {
  chosen.querySelector("bdi").textContent = name;
  chosen.hidden = false;
  for (const form of all("#declares ~ form")) {
    keepName(form, name);
  }
}
