// The page on which evidence is verified offline. The files are read here and in
// the worker, and nothing of them leaves; the one request that this script can make
// is for the keys of the service, when a person asks for them. The words are in the
// page: this script only chooses among them.

import { beginning, newHasher } from "./hash.js";
import { when } from "./times.js";
import { Refusal, isEvidence, isProof, parseTrustedKeys, pins, supported, verify, verifyKeySet } from "./verifier.js";

const main = document.querySelector("main");
const form = document.querySelector("#evidence");
const receipt = document.querySelector("#receipt");
const keys = document.querySelector("#keys");
const file = document.querySelector("#document");
const accept = document.querySelector("#accept");
const pin = document.querySelector("#pin");
const source = document.querySelector("#keys-source");
const result = document.querySelector("#result");
const maxFile = Number(main.dataset.maxFile);
const maxReceipt = 64 * 1024;
const maxTrustedKeys = 1024 * 1024;
const patience = 20_000; // milliseconds that the keys may take

const template = (id) => document.querySelector(`#${id}`).content.cloneNode(true);
const word = (name) => document.querySelector("#words").content.querySelector(`[data-word="${CSS.escape(name)}"]`).textContent;

// What belongs to an older turn than this one is dropped.
let turn = 0;
let published = null; // bytes of the keys of the service, where they were asked for
const hasher = newHasher(main.dataset.worker);

// stop cancels the running verification, so that every result belongs to the present choice.
function stop() {
  turn++;
  hasher.stop();
}

function show(content) {
  result.replaceChildren(content);
}

function notice(...parts) {
  const panel = template("notice");
  panel.querySelector("h2").append(...parts);
  show(panel);
}

function sha256(content) {
  show(template("progress"));
  const bar = result.querySelector("progress");
  return hasher.sha256(content, (read) => {
    bar.value = read / content.size;
  });
}

const instants = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g;

// readable writes the times in a text for people.
const readable = (text) => String(text).replace(instants, (time) => (Number.isNaN(Date.parse(time)) ? time : when(time)));

// sentence keeps a detail apart and short: it may be a text by the author of the file.
function sentence(kind, { code, detail }) {
  const parts = [word(`${kind}-${code}`)];
  if (detail) {
    const made = document.createElement("bdi");
    made.textContent = detail.length > 200 ? `${detail.slice(0, 200)}…` : readable(detail);
    parts.push(" ", made);
  }
  return parts;
}

// keep leaves one choice of a row, with what it names in braces.
function keep(panel, row, value, named = {}) {
  for (const choice of panel.querySelectorAll(`[data-check="${row}"] > [data-value]`)) {
    if (choice.dataset.value !== value) {
      choice.remove();
    } else {
      choice.lastChild.data = choice.lastChild.data.replace(/\{(\w+)\}/g, (_, name) => readable(named[name]));
    }
  }
}

function fill(panel, name, items) {
  const part = panel.querySelector(`[data-list="${name}"]`);
  if (items.length === 0) {
    part.remove();
  } else {
    part.querySelector("ul, dl").append(...items);
  }
}

function item(...parts) {
  const made = document.createElement("li");
  made.append(...parts);
  return made;
}

function fact([name, value]) {
  const made = template("fact");
  made.querySelector("dt").textContent = word(`fact-${name}`);
  made.querySelector("bdi").textContent = /At$|^asOf$/.test(name) ? readable(value) : value;
  return made;
}

// Members of a payload that a person wants to see, in this order.
const shown = [
  "publicId", "title", "organizationName", "issuer", "receivedAt", "issuedAt", "generatedAt", "sha256", "sizeBytes", "mimeType",
];

// age says how long ago a time was.
function age(text) {
  const minutes = Math.max(0, Math.floor((Date.now() - Date.parse(text)) / 60_000));
  const [count, unit] = minutes < 120 ? [minutes, "minute"] : minutes < 2880 ? [minutes / 60, "hour"] : [minutes / 1440, "day"];
  return new Intl.RelativeTimeFormat(main.dataset.locale).format(-Math.floor(count), unit);
}

// aboutKeys are the facts about the key that signed, and about published keys as integrity verify-keys shows them.
function aboutKeys({ key }, set) {
  const facts = key === null ? [] : [["keyId", key.keyId], ["fingerprintSha256", key.fingerprintSha256]];
  if (set) {
    const cosigned = set.cosignedAt === null ? [] : [["cosigned", `${readable(set.cosignedAt)}; ${age(set.cosignedAt)}`]];
    facts.push(
      ["keysIssuer", set.issuer], ["publishedAt", set.publishedAt], ["payloadSha256", set.payloadSha256],
      ["log", `${set.origin}, ${set.leafIndex} / ${set.treeSize}`],
      ["logKey", word(set.logKeyListed ? "log-key-listed" : "log-key-not-listed")],
      ["keysWitnesses", set.witnesses.join(", ") || word("no-witness")], ...cosigned,
    );
  }
  return facts;
}

// verdict names the sentence that sums the findings up, and the result of a comparison whose look it has. What fails
// comes first: nothing looks verified if any part is invalid.
function verdict(findings, compared) {
  if (!findings.isEvidence) {
    return ["not-evidence", "SIGNATURE_INVALID"];
  }
  if (findings.signature !== "valid") {
    return ["signature", "SIGNATURE_INVALID"];
  }
  if (findings.reasons.some(({ code }) => code !== "file-differs" && code !== "revoked")) {
    return ["part", "SIGNATURE_INVALID"];
  }
  if (findings.fileMatch === false) {
    return [compared.size === 0 ? "empty" : "mismatch", "HASH_MISMATCH"];
  }
  if (findings.reasons.length > 0) {
    return ["revoked", "RECORD_REVOKED"];
  }
  if (findings.fileMatch === null) {
    return ["no-file", "FILE_NOT_COMPARED"];
  }
  if (findings.observedStatus === "superseded") {
    return ["historical", "MATCH_HISTORICAL"];
  }
  if (findings.observedStatus === "current") {
    return ["current", "MATCH_CURRENT"];
  }
  // A public receipt has no state: the record may have been revoked before it was downloaded.
  return ["match", "MATCH_HISTORICAL"];
}

function showFindings(findings, trust, from, set, compared) {
  const panel = template("findings");
  const [name, look] = verdict(findings, compared);
  panel.querySelector(".panel").dataset.verdict = look;
  panel.querySelector("use").setAttribute("href", `#i-${look}`);
  panel.querySelector("h2").textContent = word(`verdict-${name}`);
  if (from === "service") {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = word("source-service");
    panel.querySelector("h2").after(note);
  }
  keep(panel, "signature", findings.signature);
  keep(panel, "references", findings.references);
  keep(panel, "observation", findings.observation);
  keep(panel, "status", findings.observedStatus ?? "none");
  keep(panel, "history", findings.asOfStatus === null ? findings.statusAsOf : `was-${findings.asOfStatus}`);
  keep(panel, "file", findings.fileMatch === null ? "none" : findings.fileMatch ? "match" : "mismatch");
  keep(panel, "inclusion", findings.inclusion);
  keep(panel, "time", findings.time, findings);
  if (trust.witnesses.size > 0) {
    keep(panel, "witnesses", findings.witnessed === null ? "none" : "counted", { witnessed: findings.witnessed, pinned: trust.witnesses.size });
  } else {
    panel.querySelector('[data-row="witnesses"]').remove();
  }
  keep(panel, "keys", from);
  fill(panel, "reasons", findings.reasons.map((reason) => item(word(`part-${reason.part}`), ": ", ...sentence("reason", reason))));
  fill(panel, "notes", findings.notes.map((note) => item(...sentence("note", note))));
  fill(panel, "keys", aboutKeys(findings, set).map(fact));
  const signed = findings.record ?? findings.certificate ?? {};
  const facts = shown.filter((name) => signed[name] !== undefined).map((name) => [name, signed[name]]);
  if (findings.observedAt) {
    facts.push(["observedAt", findings.observedAt]);
  }
  if (findings.asOf) {
    facts.push(["asOf", findings.asOf], ["asOfSequence", findings.asOfSequence]);
  }
  if (compared && findings.fileMatch !== null) {
    facts.push(["computed", compared.sha256]);
  }
  fill(panel, "facts", facts.map(fact));
  show(panel);
  result.querySelector("h2").focus({ preventScroll: true });
  result.scrollIntoView({ block: "start" });
}

const startsWith = (bytes, text) => [...text].every((letter, i) => bytes[i] === letter.charCodeAt(0));

async function judge(mine) {
  const chosen = { receipt: receipt.files[0], keys: keys.files[0], document: file.files[0] };
  if (!chosen.receipt) {
    notice(word("choose-receipt"));
    return;
  }
  if (chosen.document?.size > maxFile) {
    notice(word("too-large"));
    return;
  }
  // One byte more than there may be: a longer file is refused as such.
  const evidence = await beginning(chosen.receipt, maxReceipt + 1);
  if (!isEvidence(evidence)) {
    for (const place of ["document", "keys"]) {
      if (chosen[place] && isEvidence(await beginning(chosen[place], maxReceipt + 1))) {
        if (mine === turn) {
          notice(word(`swapped-${place}`));
        }
        return;
      }
    }
  }
  if (mine !== turn) {
    return;
  }
  if (startsWith(evidence, "%PDF-") || startsWith(evidence, "PK")) {
    notice(word("not-receipt"));
    return;
  }
  if (!chosen.keys && !published) {
    notice(word("choose-keys"));
    return;
  }
  const given = published ?? (await beginning(chosen.keys, maxTrustedKeys + 1));
  const proven = isProof(given);
  const from = proven ? "proof" : published ? "service" : "file";
  if (mine !== turn) {
    return;
  }
  const compared = chosen.document && { sha256: await sha256(chosen.document), size: chosen.document.size };
  let trust;
  let set = null; // of published keys
  try {
    if (proven) {
      const { trust: pinned, ...named } = await pins(pin.value);
      set = await verifyKeySet(given, pinned, { now: new Date(), ...named });
      ({ trust } = set);
    } else {
      trust = await parseTrustedKeys(given);
    }
  } catch (error) {
    if (!(error instanceof Refusal)) {
      throw error;
    }
    if (mine === turn) {
      notice(...(error.code === "missing-member" && error.detail === "/keys" ? [word("no-keys")] : [word("keys-refused"), " ", ...sentence("reason", error)]));
    }
    return;
  }
  const findings = await verify(evidence, trust, { now: new Date(), document: compared, acceptStampedBeforeRevocation: accept.checked });
  if (mine === turn) {
    showFindings(findings, trust, from, set, compared);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  stop();
  const mine = turn;
  try {
    await judge(mine);
  } catch (error) {
    if (mine === turn) {
      notice(word(error.message === "unreadable" || error.message === "folder" ? error.message : "cannot-check"));
    }
  }
});

form.addEventListener("change", (event) => {
  stop();
  if (event.target === keys) {
    published = null;
    source.textContent = keys.files.length > 0 ? word("source-file") : "";
  }
  notice(word("cleared"));
});

document.querySelector("#fetch").addEventListener("click", async () => {
  stop();
  const mine = turn;
  try {
    const response = await fetch(main.dataset.keys, {
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(patience),
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (!response.ok) {
      throw new Error("cannot-fetch");
    }
    if (mine === turn) {
      keys.value = "";
      published = bytes;
      source.textContent = word("source-service");
      notice(word("cleared"));
    }
  } catch {
    if (mine === turn) {
      notice(word("cannot-fetch"));
    }
  }
});

// A page that comes back from the browser's memory would show an older verdict.
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    location.reload();
  }
});

const able = await supported();
form.classList.remove("waiting"); // its place was kept, so that nothing moves
form.hidden = !able;
document.querySelector("#unsupported").hidden = able;
