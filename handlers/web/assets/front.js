// The front page. A file that is chosen here waits for its link, and is then compared on the page of that link, which
// takes the place of this one.

import { onDrop } from "./drop.js";
import { replace } from "./inplace.js";

const form = document.querySelector("#find");
const text = document.querySelector("#text");
const said = document.querySelector("#find-said");
const input = document.querySelector("#file");

const word = (name) => document.querySelector("#words").content.querySelector(`[data-word="${name}"]`).textContent;

const patience = 20_000; // milliseconds that an answer may take

let chosen = null;

function say(...parts) {
  said.classList.remove("error");
  said.replaceChildren(...parts);
}

function take(file) {
  chosen = file;
  if (text.value.trim() !== "") {
    form.requestSubmit();
    return;
  }
  const name = document.createElement("bdi");
  name.textContent = file.name;
  say(word("chosen"), " ", name);
  text.focus();
}

let asking = false;

form.addEventListener("submit", async (event) => {
  if (!chosen) {
    return;
  }
  event.preventDefault();
  if (asking) {
    return;
  }
  asking = true;
  say(word("asking"));
  try {
    const response = await fetch(form.action, {
      method: "POST",
      body: new URLSearchParams({ text: text.value }),
      headers: { Accept: "text/html" },
      signal: AbortSignal.timeout(patience),
    });
    if (response.redirected) {
      await replace(response, chosen);
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const again = page.querySelector("#find-said");
    if (again) {
      text.value = page.querySelector("#text").value;
      say(again.textContent);
      said.className = again.className;
    } else {
      say(word(response.status === 429 ? "busy" : "failing"));
    }
  } catch {
    say(word("failing"));
  } finally {
    asking = false;
  }
});

input.addEventListener("change", () => {
  const [file] = input.files;
  input.value = ""; // so that the same file can be chosen again
  if (file) {
    take(file);
  }
});

onDrop(document.querySelector("main"), take, (reason) => {
  chosen = null;
  say(word(reason));
});

document.querySelector("#drop").classList.remove("waiting");
