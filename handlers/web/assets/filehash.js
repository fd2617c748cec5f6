// A file is chosen or dropped and hashed in the browser. What the page does with the hash is up to its script.

import { all, show } from "./console.js";
import { onDrop } from "./drop.js";
import { newHasher } from "./hash.js";

// onHash shows the field of a file and calls found with each file and its SHA-256, after begun with the file alone. It
// returns refuse, which shows why there is no hash, and busy, which tells whether a file is being read.
export function onHash(drop, found, begun = () => {}) {
  const bar = drop.querySelector("progress");
  const input = drop.querySelector("input");
  const hasher = newHasher(drop.dataset.worker);
  let turn = 0; // what belongs to an older one is dropped
  let reading = false;

  const refuse = (name) => {
    reading = false;
    show("[data-progress]", false);
    for (const reason of all("[data-refused]")) {
      reason.hidden = reason.dataset.refused !== name;
    }
  };

  const stop = (reason) => {
    turn++;
    hasher.stop();
    refuse(reason);
  };

  const take = async (file) => {
    stop();
    const mine = turn;
    begun(file);
    if (file.size > Number(drop.dataset.maxFile)) {
      refuse("too-large");
      return;
    }
    bar.value = 0;
    reading = true;
    show("[data-progress]", true);
    try {
      const hash = await hasher.sha256(file, (read) => {
        bar.value = read / file.size;
      });
      if (mine === turn) {
        reading = false;
        found(file, hash);
      }
    } catch (error) {
      if (mine === turn) {
        refuse(error.message);
      }
    }
  };

  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = ""; // so that the same file can be chosen again
    if (file) {
      take(file);
    }
  });
  drop.querySelector("[data-cancel]").addEventListener("click", () => stop());
  onDrop(drop.parentElement, take, stop);

  // A page that comes back from the browser's memory has finished with its file.
  addEventListener("pageshow", (event) => {
    if (event.persisted) {
      refuse();
    }
  });

  for (const waiting of [drop, ...all("[data-with-drop]")]) {
    waiting.classList.remove("waiting");
  }
  return { refuse, busy: () => reading };
}
