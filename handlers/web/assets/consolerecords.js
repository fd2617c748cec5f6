// The search for a file: it is hashed here, and the search is for its SHA-256. Without this script a hash can be pasted.

import { all, show } from "./console.js";
import { onDrop } from "./drop.js";
import { newHasher } from "./hash.js";

const drop = document.querySelector("[data-hash]");
const bar = drop.querySelector("progress");
const input = drop.querySelector("input");
const hasher = newHasher(drop.dataset.worker);

const refuse = (name) => {
  show("[data-progress]", false);
  for (const reason of all("[data-refused]")) {
    reason.hidden = reason.dataset.refused !== name;
  }
};

let turn = 0; // what belongs to an older one is dropped

const stop = (reason) => {
  turn++;
  hasher.stop();
  refuse(reason);
};

const find = async (file) => {
  stop();
  const mine = turn;
  if (file.size > Number(drop.dataset.maxFile)) {
    refuse("too-large");
    return;
  }
  bar.value = 0;
  show("[data-progress]", true);
  try {
    const hash = await hasher.sha256(file, (read) => {
      bar.value = read / file.size;
    });
    if (mine === turn) {
      location.assign(`${drop.dataset.hash}?find=${hash}`);
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
    find(file);
  }
});

drop.querySelector("[data-cancel]").addEventListener("click", () => {
  stop();
});

onDrop(drop.parentElement, find, stop);

// A page that comes back from the browser's memory has finished with its file.
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    refuse();
  }
});

drop.hidden = false;
