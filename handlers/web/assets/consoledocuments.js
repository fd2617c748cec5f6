// A file is sent with its progress, once however often the button is pressed. For a review it is hashed here first, and only
// the very file of the version is sent. The words are in the page: this script only chooses among them.

import { hexSHA256 } from "./bytes.js";
import { all, show } from "./console.js";
import { onDrop } from "./drop.js";
import { beginning, newHasher } from "./hash.js";
import { canonical, decode } from "./strictjson.js";

const form = document.querySelector("form[data-send]");
const { send: address, sha256: wanted, kind, maxFile, maxManifest } = form.dataset;
const input = form.elements.file;
const button = form.querySelector(".actions button");
const bar = form.querySelector("[data-progress] progress");
const hasher = wanted && newHasher(form.dataset.worker);

// say shows one of the messages, none without a name.
const say = (name) => {
  for (const message of all("[data-said]")) {
    message.hidden = message.dataset.said !== name;
    if (!message.hidden) {
      message.scrollIntoView({ block: "nearest" });
    }
  }
};

const fields = (name) => form.querySelectorAll(`[name="${CSS.escape(name)}"], [data-member="${CSS.escape(name)}"]`);

// wrong shows the error of a field, and returns whether the page has a message for it.
const wrong = (name, shown) => {
  for (const field of fields(name)) {
    field.setAttribute("aria-invalid", shown);
  }
  show(`[data-wrong="${CSS.escape(name)}"]`, shown);
  return form.querySelector(`[data-wrong="${CSS.escape(name)}"]`) !== null;
};

const percents = new Intl.NumberFormat(document.documentElement.lang, { style: "percent" });

// progress shows how far a task has come; the words change seldom, for they are read out.
const progress = (task, part) => {
  show("[data-progress]", task !== undefined);
  for (const words of all("[data-task]")) {
    words.hidden = words.dataset.task !== task;
  }
  show("[data-cancel]", task !== "working");
  bar.value = part || 0; // an empty file has no part
  const percent = percents.format(Math.floor((part || 0) * 10) / 10);
  for (const words of all("[data-percent]")) {
    if (words.textContent !== percent) {
      words.textContent = percent;
    }
  }
};

let turn = 0; // what belongs to an older choice of a file is dropped
let compared = !hasher; // whether the chosen file is the very file of the version
let request = null;
let key = null; // the Idempotency-Key of the present input: sending the same input again is the same request

// A manifest is registered in its canonical form, whatever its spelling.
const sameManifest = async (file) => {
  if (kind !== "manifest" || file.size > Number(maxManifest)) {
    return false;
  }
  try {
    return (await hexSHA256(canonical(decode(new Uint8Array(await file.arrayBuffer()), file.size)))) === wanted;
  } catch {
    return false;
  }
};

const compare = async (mine, file) => {
  progress("hashing", 0);
  try {
    const hash = await hasher.sha256(file, (read) => progress("hashing", read / file.size));
    const same = hash === wanted || (await sameManifest(file));
    if (mine === turn) {
      progress();
      compared = same;
      say(same ? "same" : "other");
    }
  } catch (error) {
    if (mine === turn) {
      progress();
      say(error.message);
    }
  }
};

const chosen = () => {
  const mine = ++turn;
  hasher?.stop();
  compared = !hasher;
  key = null;
  progress();
  say();
  wrong("file", false);
  const [file] = input.files;
  show("[data-chosen]", file !== undefined);
  if (file === undefined) {
    return;
  }
  form.querySelector("[data-name]").textContent = file.name;
  if (file.size > Number(maxFile)) {
    input.value = "";
    show("[data-chosen]", false);
    say("PAYLOAD_TOO_LARGE");
  } else if (hasher) {
    compare(mine, file);
  }
};

input.addEventListener("change", chosen);
onDrop(
  form,
  (file) => {
    if (!request) {
      const carried = new DataTransfer();
      carried.items.add(file);
      input.files = carried.files;
      chosen();
    }
  },
  (reason) => request || say(reason),
);
form.addEventListener("input", ({ target }) => {
  key = null;
  wrong(target.name, false);
});

// sending locks the form while a request is under way.
const sending = (now) => {
  request = now;
  button.setAttribute("aria-disabled", now !== null);
  for (const field of form.elements) {
    if (field.type === "file" || field.type === "radio" || field.type === "checkbox") {
      field.disabled = now !== null;
    } else if ("readOnly" in field) {
      field.readOnly = now !== null;
    }
  }
};

const refused = (answer) => {
  const names = (answer.error?.errors ?? []).map(({ pointer }) => pointer.slice(1));
  const said = names.filter((name) => wrong(name, true));
  fields(said[0] ?? "")[0]?.focus();
  const code = answer.location ? "signed-out" : answer.error?.code;
  if (said.length === 0) {
    say(form.querySelector(`[data-said="${CSS.escape(code ?? "")}"]`) ? code : "failed");
  }
};

const send = () => {
  const body = new FormData();
  const members = {};
  for (const { name, type, value, checked, dataset } of form.elements) {
    if (name && type !== "file" && (type !== "radio" || checked)) {
      members[dataset.member ?? name] = type === "checkbox" ? checked : value.trim();
    }
  }
  body.append("metadata", JSON.stringify(members));
  body.append("file", input.files[0]);
  key ??= crypto.randomUUID();
  const mine = new XMLHttpRequest();
  const end = (act) => () => {
    sending(null);
    progress();
    act();
  };
  mine.upload.addEventListener("progress", ({ loaded, total }) => progress("sending", loaded / total));
  mine.upload.addEventListener("load", () => {
    progress("working");
    bar.removeAttribute("value");
  });
  mine.addEventListener("load", () => {
    let answer = {};
    try {
      answer = JSON.parse(mine.responseText);
    } catch {
      // an answer of something between here and the service
    }
    if (mine.status < 300 && answer.data?.location) {
      location.assign(answer.data.location);
    } else {
      end(() => refused(answer))();
    }
  });
  mine.addEventListener("error", end(() => say("offline")));
  mine.addEventListener("abort", end(() => say("cancelled")));
  mine.open("POST", address);
  mine.setRequestHeader("Accept", "application/json");
  mine.setRequestHeader("Idempotency-Key", key);
  say();
  progress("sending", 0);
  bar.scrollIntoView({ block: "nearest" });
  sending(mine);
  mine.send(body);
};

// readAndSend sends what can be read: a folder would arrive as an empty file.
const readAndSend = async () => {
  const mine = ++turn;
  try {
    await beginning(input.files[0], 1);
  } catch (error) {
    if (mine === turn) {
      say(error.message);
    }
    return;
  }
  if (mine === turn) {
    send();
  }
};

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (request) {
    return;
  }
  if (input.files.length === 0) {
    wrong("file", true);
    input.focus();
  } else if (compared) {
    readAndSend();
  } else {
    input.focus(); // the page already says that the file is wrong or still being read
  }
});

form.querySelector("[data-cancel]").addEventListener("click", () => {
  if (request) {
    request.abort();
    return;
  }
  input.value = "";
  chosen();
  input.focus();
});

// A page that comes back from the browser's memory has finished with its file.
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    location.reload();
  }
});

show("[data-no-script]", false);
button.disabled = false;
