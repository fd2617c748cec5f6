// The page on which a file is compared. The file is read here and in the worker;
// what leaves is its SHA-256, in one request for each comparison. The words are
// in the page: this script only chooses among them.

import { onDrop } from "./drop.js";
import { newHasher } from "./hash.js";
import { replace } from "./inplace.js";
import { when } from "./times.js";

const main = document.querySelector("main");
const { kind, publicId, ask: askAddress, worker: workerAddress, locale } = main.dataset;
const maxFile = Number(main.dataset.maxFile);
const result = document.querySelector("#result");
const seen = document.querySelectorAll("#seen, #apart");
const input = document.querySelector("#file");
const brand = document.title.slice(document.title.lastIndexOf(" · "));
const patience = 20_000; // milliseconds that an answer may take

const word = (name) => document.querySelector("#words").content.querySelector(`[data-word="${name}"]`).textContent;
const template = (id) => document.querySelector(`#${id}`).content.cloneNode(true);

// What belongs to an older turn than this one is dropped.
let turn = 0;

// The file that was compared last.
let compared = null;

// The signature and the state of the record as the service last answered them.
let known = main.dataset;

const hasher = newHasher(workerAddress);

function stop() {
  turn++;
  hasher.stop();
}

// show puts a panel in place of the former one, in the title too. The focus follows only where it
// would otherwise be lost with what it was on.
function show(content) {
  const held = result.contains(document.activeElement) || document.activeElement === document.body;
  result.replaceChildren(content);
  seen.forEach((said) => said.remove());
  document.title = result.querySelector("h2").textContent + brand;
  if (held) {
    result.querySelector("h2").focus({ preventScroll: true });
  }
  const top = result.getBoundingClientRect().top;
  if (top < 0 || top > window.innerHeight * 0.6) {
    result.scrollIntoView({ block: "start" });
  }
}

function keep(panel, check, value) {
  for (const choice of panel.querySelectorAll(`[data-check="${check}"] > [data-value]`)) {
    if (choice.dataset.value !== (value || "none")) {
      choice.remove();
    }
  }
}

function panelOf(name, file, signature, state) {
  const panel = template(`panel-${name}`);
  keep(panel, "file", file);
  keep(panel, "signature", signature);
  keep(panel, "state", state);
  return panel;
}

// refuse says why nothing was compared.
function refuse(name) {
  const panel = panelOf("FILE_NOT_COMPARED", null, known.signature, known.state);
  const note = element("p", word(name));
  note.className = "note";
  panel.querySelector("h2").after(note);
  show(panel);
}

function size(bytes) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  const unit = bytes < 1e3 ? 0 : bytes < 1e6 ? 1 : bytes < 1e9 ? 2 : 3;
  const format = { style: "unit", unit: units[unit], unitDisplay: unit === 0 ? "long" : "short", maximumFractionDigits: 1 };
  return new Intl.NumberFormat(locale, format).format(bytes / 1000 ** unit);
}

// element keeps text apart: what a file's name holds of right-to-left writing
// must not turn round what stands beside it.
function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function addFacts(panel, facts) {
  const list = panel.querySelector("[data-facts]");
  for (const [name, ...parts] of facts) {
    const fact = template("fact");
    fact.querySelector("dt").textContent = word(name);
    fact.querySelector("dd").append(...parts);
    list.append(fact);
  }
}

// action makes a button for the next step after a result. Paper does not show it.
function action(name, act) {
  const button = element("button", word(name));
  button.type = "button";
  button.className = "quiet";
  button.addEventListener("click", act);
  const actions = element("p", "");
  actions.className = "actions screen";
  actions.append(button);
  return actions;
}

// The answers that each kind of page understands: what their parts must be. Anything
// else is no answer, and never a match or a mismatch.
const kinds = {
  record: {
    unknown: "RECORD_NOT_FOUND",
    results: {
      MATCH_CURRENT: { file: [true], signature: ["valid"], state: ["current"] },
      MATCH_HISTORICAL: { file: [true], signature: ["valid"], state: ["superseded"] },
      HASH_MISMATCH: { file: [false], signature: ["valid"], state: ["current", "superseded", "revoked"] },
      RECORD_REVOKED: { file: [true], signature: ["valid"], state: ["revoked"] },
      SIGNATURE_INVALID: { file: [null], signature: ["invalid", "untrusted"], state: [null] },
      REGISTRATION_PENDING: { file: [null], signature: [null], state: ["pending"] },
    },
    read: ({ result, checks, receivedAt, keyId }) => ({
      result,
      file: checks?.fileMatch,
      signature: checks?.signature,
      state: checks?.versionState,
      dated: receivedAt,
      keyId,
    }),
  },
  certificate: {
    unknown: "CERTIFICATE_NOT_FOUND",
    // The names under which the page shows the reasons.
    reasons: {
      MATCH: "MATCH_CURRENT",
      CERTIFICATE_REPLACED: "MATCH_HISTORICAL",
      CERTIFICATE_REVOKED: "RECORD_REVOKED",
      HASH_MISMATCH: "HASH_MISMATCH",
      SIGNATURE_INVALID: "SIGNATURE_INVALID",
    },
    results: {
      MATCH_CURRENT: { file: [true], signature: ["valid"], state: ["valid"] },
      MATCH_HISTORICAL: { file: [true], signature: ["valid"], state: ["replaced"] },
      HASH_MISMATCH: { file: [false], signature: ["valid"], state: ["valid", "replaced", "revoked"] },
      RECORD_REVOKED: { file: [true], signature: ["valid"], state: ["revoked"] },
      SIGNATURE_INVALID: { file: [null], signature: ["invalid"], state: [null] },
    },
    // The state of a certificate with an invalid signature is vouched for by no one.
    read: ({ reason, hashMatches, signatureValid, certificateStatus, certificate }) => ({
      result: kinds.certificate.reasons[reason],
      file: hashMatches,
      signature: { true: "valid", false: "invalid" }[signatureValid],
      state: signatureValid ? certificateStatus : null,
      dated: certificate?.issuedAt,
      keyId: certificate?.keyId,
    }),
  },
};

// understand reads an answer; anything else gives undefined.
function understand(data) {
  if (data?.publicId !== publicId) {
    return undefined;
  }
  const answer = kinds[kind].read(data);
  const form = kinds[kind].results[answer.result];
  const fits =
    form !== undefined &&
    data.verified === (answer.result === "MATCH_CURRENT") &&
    form.file.includes(answer.file) &&
    form.signature.includes(answer.signature) &&
    form.state.includes(answer.state);
  return fits ? { ...answer, checkedAt: data.checkedAt } : undefined;
}

// ask makes a fresh comparison. It gives a result of the service, or says why it has no result.
async function ask(hash) {
  let response;
  try {
    response = await fetch(`${askAddress}?sha256=${hash}`, {
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
      headers: { Accept: "application/json" },
      signal: AbortSignal.timeout(patience),
    });
  } catch {
    return { note: "offline" };
  }
  let body;
  try {
    body = await response.json();
  } catch {
    return { note: "failing" };
  }
  const found = response.status === 200 ? understand(body?.data) : undefined;
  if (found !== undefined) {
    return { found };
  }
  if (response.status === 404 && body?.error?.code === kinds[kind].unknown) {
    return { unknown: true };
  }
  return { note: response.status === 429 ? "busy" : "failing", wait: response.headers.get("Retry-After") };
}

async function compare(mine, file, hash) {
  const facts = [["hash", element("code", hash)]];
  const answer = await ask(hash);
  if (mine !== turn) {
    return;
  }
  let panel;
  if (answer.found) {
    const { result: name, file: match, signature, state, dated, checkedAt, keyId } = answer.found;
    known = answer.found;
    panel = panelOf(name, { true: "match", false: "mismatch" }[match], signature, state);
    if (match === false && file.size === 0) {
      panel.querySelector("h2").textContent = word("empty");
      panel.querySelector("h2 + p").textContent = word("empty-text");
    }
    if (match === false) {
      panel.querySelector("h2 + p").after(action("another", () => input.click()));
    }
    if (dated) {
      facts.push(["dated", when(dated)]);
    }
    facts.push(["checked", when(checkedAt)]);
    if (keyId) {
      facts.push(["key", element("code", keyId)]);
    }
  } else if (answer.unknown) {
    known = {};
    panel = panelOf("RECORD_NOT_FOUND");
  } else {
    panel = panelOf("UNAVAILABLE");
    panel.querySelector("[data-note]").textContent = word(answer.note);
    if (/^\d{1,6}$/.test(answer.wait ?? "")) {
      const wait = panel.querySelector("[data-wait]");
      wait.querySelector("span").textContent = answer.wait;
      wait.hidden = false;
    }
    panel.querySelector("[data-retry]").addEventListener("click", () => {
      turn++;
      asking(template("panel-progress"));
      compare(turn, file, hash);
    });
  }
  const name = element("p", `${word("your-file")}: `);
  name.append(element("bdi", file.name), ` (${size(file.size)})`);
  panel.querySelector("h2").after(name);
  addFacts(panel, facts);
  if (answer.found) {
    panel.querySelector("[data-facts]").after(action("print", () => print()));
  }
  show(panel);
}

// asking shows that the file has been read and the service is asked.
function asking(panel) {
  const bar = panel.querySelector("progress");
  panel.querySelector("[data-hashing]").textContent = word("asking");
  bar.setAttribute("aria-label", word("asking"));
  bar.removeAttribute("value");
  panel.querySelector("[data-cancel]").addEventListener("click", cancel);
  show(panel);
}

function cancel() {
  stop();
  refuse("cancelled");
  input.focus({ preventScroll: true });
}

export async function check(file) {
  stop();
  compared = file;
  const mine = turn;
  if (file.size > maxFile) {
    refuse("too-large");
    return;
  }
  const panel = template("panel-progress");
  const bar = panel.querySelector("progress");
  const percent = panel.querySelector(".percent");
  const format = new Intl.NumberFormat(locale, { style: "percent" });
  panel.querySelector("[data-cancel]").addEventListener("click", cancel);
  show(panel);
  let hash;
  try {
    hash = await hasher.sha256(file, (read) => {
      bar.value = read / file.size;
      percent.textContent = format.format(read / file.size);
    });
  } catch (error) {
    if (mine === turn) {
      refuse(error.message);
    }
    return;
  }
  if (mine !== turn) {
    return;
  }
  asking(template("panel-progress"));
  await compare(mine, file, hash);
}

input.addEventListener("change", () => {
  const [file] = input.files;
  input.value = ""; // so that the same file can be chosen again
  if (file) {
    check(file);
  }
});

onDrop(main, check, (reason) => {
  stop();
  refuse(reason);
});

// A page that comes back from the browser's memory shows an old answer.
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    location.reload();
  }
});

// The browser would forget the file with the page: it is compared again on the page in the other language.
document.querySelector("a.language")?.addEventListener("click", async (event) => {
  if (!compared || event.ctrlKey || event.metaKey || event.shiftKey) {
    return;
  }
  event.preventDefault();
  stop();
  const { href } = event.currentTarget;
  try {
    await replace(await fetch(href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(patience) }), compared);
  } catch {
    location.assign(href);
  }
});

document.querySelector("#needs-script").hidden = true;
for (const waiting of document.querySelectorAll("#drop, [data-with-drop]")) {
  waiting.classList.remove("waiting");
}
