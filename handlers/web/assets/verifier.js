// Verifies receipts and certificates offline: the steps of the service's public
// description of its evidence, with WebCrypto's SHA-256 and Ed25519 and nothing
// else. It runs in browsers and in Node.js, reads no clock, no network and no
// storage, and never takes a key out of a receipt.
//
// A verdict is a set of findings, never one boolean. A finding is "valid",
// "invalid", "untrusted" (the key is not pinned, or is revoked), "not-supplied" or
// "not-checked" (an earlier part failed). Reasons are the failures; notes are what
// a reader must know besides. Both are codes for the caller to put into words.

import { decodeBase64, decodeBase64URL, encodeBase64URL, encoder, hex, hexSHA256, sha256 } from "./bytes.js";
import { Numeral, Refusal, canonical, decode, parse } from "./strictjson.js";
import { logName, readCheckpoint, readVerifierKey, rootOf } from "./transparency.js";

export { Refusal };

const maxReceipt = 64 * 1024; // bytes
const maxTrustedKeys = 1024 * 1024; // bytes
const clockTolerance = 300_000_000n; // microseconds

// ---- Closed objects of known members

const issuer = /^[^\u0000-\u001f\u007f]{1,512}$/u;
const published = /^[^\u0000-\u001f\u007f]{1,200}$/u;
const publicId = /^[a-z2-7]{26}$/;
const sha256Hex = /^[a-f0-9]{64}$/;
const mimeType = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/; // RFC 6838, section 4.2
const reference = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const timestamp = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))$/;

// instant reads a timestamp as microseconds since 1970, or answers null where it
// is no real date of the years 0001 to 9999 in UTC.
function instant(text) {
  const found = timestamp.exec(text);
  const civil = found && new Date(`${found[1]}Z`);
  if (!found || Number.isNaN(civil.getTime()) || civil.toISOString().slice(0, 19) !== found[1]) {
    return null;
  }
  const [, , fraction = "", sign, hours = "0", minutes = "0"] = found;
  if (Number(hours) > 23 || Number(minutes) > 59) {
    return null;
  }
  const offset = (Number(hours) * 60 + Number(minutes)) * (sign === "-" ? -1 : 1);
  const moment = new Date(civil.getTime() - offset * 60_000);
  if (moment.getUTCFullYear() < 1 || moment.getUTCFullYear() > 9999) {
    return null;
  }
  return BigInt(moment.getTime()) * 1000n + BigInt(fraction.padEnd(6, "0").slice(0, 6));
}

const matches = (pattern) => (value) => typeof value === "string" && pattern.test(value);
const text = (value) => typeof value === "string";
const constant = (wanted) => (value) => value === wanted;
const integer = (least, most = Number.MAX_SAFE_INTEGER) => (value) =>
  value instanceof Numeral && Number(value.text) >= least && Number(value.text) <= most;
const base64URL = (size) => (value) => typeof value === "string" && decodeBase64URL(value, size) !== null;
const anyTime = (value) => typeof value === "string" && instant(value) !== null;
const normalTime = (value) => anyTime(value) && value.endsWith("Z") && !/\.\d*0Z$/.test(value);
const serviceTime = (value) => normalTime(value) && !/\.\d{7}/.test(value);
const object = (value) => value instanceof Map;
const list = (value) => Array.isArray(value);

function anObject(value, at = "") {
  if (!object(value)) {
    throw new Refusal("type", at);
  }
  return value;
}

// closed requires an object of exactly these members, each as its test wants it.
// Names in optional may be absent.
function closed(value, form, optional = [], at = "") {
  for (const name of anObject(value, at).keys()) {
    if (!Object.hasOwn(form, name)) {
      throw new Refusal("unknown-member", `${at}/${name}`);
    }
  }
  for (const [name, right] of Object.entries(form)) {
    if (!value.has(name)) {
      if (!optional.includes(name)) {
        throw new Refusal("missing-member", `${at}/${name}`);
      }
    } else if (!right(value.get(name))) {
      throw new Refusal("format", `${at}/${name}`);
    }
  }
  return value;
}

const keyNames = { keyId: text, publicKeyJwk: object, fingerprintSha256: text };
const signedForm = { payload: text, signature: text, ...keyNames };
const jwkForm = { kty: text, crv: text, x: text };
const inclusionForm = {
  leaf: text, leafIndex: integer(0), treeSize: integer(1), hashes: (value) => list(value) && value.every(text), checkpoint: text,
};
const recordForm = {
  contract: constant("integrity-v1"), algorithm: constant("SHA-256"), timeSource: constant("service-clock"),
  issuer: matches(issuer), publicId: matches(publicId), sha256: matches(sha256Hex), sizeBytes: integer(0),
  mimeType: matches(mimeType), generatedAt: normalTime, receivedAt: serviceTime, referencesSha256: matches(sha256Hex),
};
const leafForm = {
  contract: constant("integrity-leaf-v1"), type: constant("integrity.registered"), id: matches(/^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
  occurredAt: serviceTime, payloadSha256: matches(sha256Hex), bodySha256: matches(sha256Hex), nonce: base64URL(16),
};
const statusForm = {
  contract: constant("integrity-status-v1"), publicId: matches(publicId), payloadSha256: matches(sha256Hex),
  status: matches(/^(?:current|superseded|revoked)$/), observedAt: serviceTime, sequence: integer(1),
};
const statusAsOfForm = { ...statusForm, contract: constant("integrity-status-as-of-v1"), asOf: serviceTime, asOfSequence: integer(1) };
const certificateForm = {
  contract: constant("certificate-v1"), algorithm: constant("SHA-256"), timeSource: constant("service-clock"),
  issuer: matches(issuer), publicId: matches(publicId), sha256: matches(sha256Hex), sizeBytes: integer(0), issuedAt: serviceTime,
  title: matches(published), organizationName: matches(published),
};
const anyInteger = integer(Number.MIN_SAFE_INTEGER);
const referencesShape = { companyReference: text, source: text, documentReference: text, version: anyInteger, salt: text };
const referencesForm = {
  companyReference: matches(reference), source: matches(reference), documentReference: matches(reference),
  version: integer(1, 2 ** 31 - 1), salt: base64URL(16),
};

// readSigned requires the five members that every signed part has, with a JWK of
// exactly kty, crv and x: a private key's d is an unknown member.
function readSigned(value, form = signedForm, optional = [], at = "") {
  closed(value, form, optional, at);
  closed(value.get("publicKeyJwk"), jwkForm, [], `${at}/publicKeyJwk`);
  return value;
}

// readPayload reads signed text: its role first, then its members, then its form.
function readPayload(payload, form, optional = []) {
  const value = parse(payload);
  const contract = object(value) ? value.get("contract") : undefined;
  if (typeof contract === "string" && !form.contract(contract)) {
    throw new Refusal("role", contract);
  }
  closed(value, form, optional);
  if (canonical(value) !== payload) {
    throw new Refusal("not-canonical");
  }
  return Object.fromEntries([...value].map(([name, member]) => [name, member instanceof Numeral ? Number(member.text) : member]));
}

// ---- Trusted keys

const derPrefix = Uint8Array.of(0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00); // SPKI of Ed25519, RFC 8410

async function namesOf(raw) {
  const keyId = encodeBase64URL(await sha256(encoder.encode(`{"crv":"Ed25519","kty":"OKP","x":"${encodeBase64URL(raw)}"}`))); // RFC 7638
  return { keyId, fingerprintSha256: hex(await sha256(Uint8Array.of(...derPrefix, ...raw))) };
}

async function readKey(value, at) {
  closed(value, keyNames, [], at);
  const form = { kty: constant("OKP"), crv: constant("Ed25519"), x: base64URL(32) };
  const x = closed(value.get("publicKeyJwk"), form, [], `${at}/publicKeyJwk`).get("x");
  const raw = decodeBase64URL(x, 32);
  const { keyId, fingerprintSha256 } = await namesOf(raw);
  if (value.get("keyId") !== keyId || value.get("fingerprintSha256") !== fingerprintSha256) {
    throw new Refusal("key-names", at);
  }
  return { keyId, fingerprintSha256, x, raw, status: "active" };
}

// readLogKeys reads the keys of the transparency log, none of which may sign records too.
async function readLogKeys(entries, keys, barred) {
  const logKeys = new Map(); // by name and key hash
  for (const [i, entry] of entries.entries()) {
    const at = `/logKeys/${i}`;
    closed(entry, { name: text, keyHash: text, verifierKey: text }, [], at);
    const key = await readVerifierKey(entry.get("verifierKey"), at);
    if (entry.get("name") !== key.name || entry.get("keyHash") !== key.keyHash) {
      throw new Refusal("log-key", at);
    }
    const { keyId, fingerprintSha256 } = await namesOf(key.raw);
    if (keys.has(keyId) || barred.has(keyId) || barred.has(fingerprintSha256)) {
      throw new Refusal("log-key-signs", at);
    }
    const id = `${key.name}+${key.keyHash}`;
    if (logKeys.has(id)) {
      throw new Refusal("duplicate", id);
    }
    logKeys.set(id, key);
  }
  return logKeys;
}

/**
 * Reads a trusted-keys file (bytes), or the bare array of its keys. One fault
 * refuses the file whole, with a Refusal.
 */
export async function parseTrustedKeys(bytes) {
  let value = decode(bytes, maxTrustedKeys);
  if (list(value)) {
    value = new Map([["keys", value]]);
  }
  closed(value, { keys: list, keyStatus: object, revokedKeys: list, logKeys: list }, ["keyStatus", "revokedKeys", "logKeys"]);
  const keys = new Map();
  for (const [i, entry] of value.get("keys").entries()) {
    const key = await readKey(entry, `/keys/${i}`);
    if (keys.has(key.keyId)) {
      throw new Refusal("duplicate", key.keyId);
    }
    keys.set(key.keyId, key);
  }
  const revoked = new Set();
  const barred = new Set();
  const revokedForm = {
    keyId: base64URL(32), fingerprintSha256: matches(sha256Hex), reason: matches(/^(?:compromised|revoked)$/), since: anyTime,
  };
  for (const [i, entry] of (value.get("revokedKeys") ?? []).entries()) {
    closed(entry, revokedForm, [], `/revokedKeys/${i}`);
    if (revoked.has(entry.get("keyId"))) {
      throw new Refusal("duplicate", entry.get("keyId"));
    }
    revoked.add(entry.get("keyId"));
    barred.add(entry.get("keyId")).add(entry.get("fingerprintSha256"));
  }
  for (const [id, entry] of value.get("keyStatus") ?? []) {
    const at = `/keyStatus/${id}`;
    closed(entry, { status: matches(/^(?:active|retired)$/), since: anyTime }, [], at);
    if (!keys.has(id) && !revoked.has(id)) {
      throw new Refusal("unknown-key", at);
    }
    if (keys.has(id)) {
      keys.get(id).status = entry.get("status");
    }
  }
  return { keys, barred, logKeys: await readLogKeys(value.get("logKeys") ?? [], keys, barred) };
}

// ---- Signatures

const order = 0x1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3edn; // L of RFC 8032, section 5.1

async function verifies(raw, signature, message) {
  const s = BigInt(`0x${hex(signature.slice(32).reverse())}`);
  if (s >= order) {
    return false; // RFC 8032, section 5.1.7, whatever the library allows
  }
  let key;
  try {
    key = await crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    if (error.name === "DataError") {
      return false; // 32 bytes that are no point
    }
    throw error;
  }
  return crypto.subtle.verify({ name: "Ed25519" }, key, signature, message);
}

/** Whether this program can check Ed25519 at all: it must accept RFC 8032's second test and refuse it altered. */
export async function supported() {
  const raw = decodeBase64URL("PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw", 32);
  const signature = decodeBase64URL("kqAJqfDUyrhyDoILX2QlQKKye1QWUD-Ps3YiI-vbadoIWsHkPhWZbkWPNhPQ8R2MOHsurrQwKu6wDSkWErsMAA", 64);
  try {
    return (await verifies(raw, signature, Uint8Array.of(0x72))) && !(await verifies(raw, signature, Uint8Array.of(0x73)));
  } catch {
    return false;
  }
}

// checkSigned is steps 2 to 4 for one signed part: a failure as [finding, code], or the pinned key.
async function checkSigned(signed, trust) {
  const signature = decodeBase64URL(signed.get("signature"), 64);
  if (signature === null) {
    return { failure: ["invalid", "signature-form"] };
  }
  const key = trust.keys.get(signed.get("keyId"));
  if (key === undefined) {
    return { failure: ["untrusted", "key-unknown"] };
  }
  if (trust.barred.has(key.keyId) || trust.barred.has(key.fingerprintSha256)) {
    return { failure: ["untrusted", "key-revoked"] };
  }
  if (!(await verifies(key.raw, signature, encoder.encode(signed.get("payload"))))) {
    return { failure: ["invalid", "signature"] };
  }
  const jwk = signed.get("publicKeyJwk");
  if (
    jwk.get("kty") !== "OKP" || jwk.get("crv") !== "Ed25519" || jwk.get("x") !== key.x ||
    signed.get("fingerprintSha256") !== key.fingerprintSha256
  ) {
    return { failure: ["invalid", "key-differs"] };
  }
  return { key };
}

// ---- Verdicts

/** What a receipt or certificate proves, part by part. What is not established is null. */
class Findings {
  signature = "invalid";
  references = "not-checked";
  observation = "not-checked";
  observedStatus = null;
  observedAt = null;
  fileMatch = null;
  inclusion = "not-checked";
  statusAsOf = "not-checked"; // the state as of an earlier moment: history, never the observed status
  asOfStatus = null;
  asOf = null;
  asOfSequence = null;
  record = null; // the verified payload of a receipt; null unless signature is "valid"
  certificate = null; // the same of a certificate
  reasons = [];
  notes = [];

  fail(part, code, detail = "") {
    this.reasons.push({ part, code, detail });
  }

  note(code, detail = "") {
    this.notes.push({ code, detail });
  }

  // attempt turns a refusal into a failure of the part; anything else is thrown on.
  attempt(part, read) {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof Refusal)) {
        throw error;
      }
      this.fail(part, error.code, error.detail);
      return null;
    }
  }

  // payload checks the signature and then reads what was signed, or answers null.
  async payload(signed, trust, form, optional) {
    const { failure, key } = await checkSigned(signed, trust);
    if (failure) {
      [this.signature] = failure;
      this.fail("signature", failure[1]);
      return null;
    }
    const payload = this.attempt("signature", () => readPayload(signed.get("payload"), form, optional));
    if (payload !== null) {
      this.signature = "valid";
      if (key.status === "retired") {
        this.note("key-retired");
      }
    }
    return payload;
  }

  // compare: the hash decides, a differing length is only reported.
  compare(document, signed) {
    if (!document) {
      this.note("no-document");
      return;
    }
    this.fileMatch = document.sha256.toLowerCase() === signed.sha256;
    if (!this.fileMatch) {
      this.fail("file", "file-differs");
    }
    if (document.size !== signed.sizeBytes) {
      this.note("size-differs", `${document.size} / ${signed.sizeBytes}`);
    }
  }
}

async function checkReferences(findings, references) {
  if (references === undefined) {
    findings.note("no-references");
    return;
  }
  findings.references = "invalid";
  if (findings.attempt("references", () => closed(references, referencesForm, [], "/references")) === null) {
    return;
  }
  if ((await hexSHA256(canonical(references))) !== findings.record.referencesSha256) {
    findings.fail("references", "references-differ");
    return;
  }
  findings.references = "valid";
}

async function checkObservation(findings, envelope, trust, now) {
  const observation = envelope.get("statusObservation");
  if (observation === undefined) {
    findings.note("no-observation");
    return;
  }
  const { failure } = await checkSigned(observation, trust);
  if (failure) {
    [findings.observation] = failure;
    findings.fail("observation", failure[1]);
    return;
  }
  findings.observation = "invalid";
  const status = findings.attempt("observation", () => readPayload(observation.get("payload"), statusForm));
  if (status === null) {
    return;
  }
  if (!(await isAbout(findings.record, envelope, status))) {
    findings.fail("observation", "another-record");
  } else if (instant(status.observedAt) < instant(findings.record.receivedAt)) {
    findings.fail("observation", "before-record");
  } else if (isAhead(status, now)) {
    findings.fail("observation", "in-future");
  } else {
    Object.assign(findings, { observation: "valid", observedStatus: status.status, observedAt: status.observedAt });
    if (status.status === "revoked") {
      findings.fail("observation", "revoked", status.observedAt);
    } else {
      findings.note(`was-${status.status}`, status.observedAt);
    }
  }
}

const cosignature = 72; // bytes of time and Ed25519 in a line of C2SP tlog-cosignature

// checkLog judges a checkpoint's signatures: each by a pinned key of its origin must
// verify and stand once. It answers the failure, or who else cosigned.
async function checkLog(checkpoint, trust) {
  const seen = new Set();
  const witnesses = [];
  for (const { name, keyHash, signature } of checkpoint.signatures) {
    const key = trust.logKeys.get(`${name}+${keyHash}`);
    if (key === undefined || name !== checkpoint.origin) {
      if (signature.length === cosignature && logName.test(name)) {
        witnesses.push(name);
      }
      continue;
    }
    if (seen.has(key) || signature.length !== 64 || !(await verifies(key.raw, signature, encoder.encode(checkpoint.signed)))) {
      return { failure: ["invalid", "checkpoint-signature"] };
    }
    seen.add(key);
  }
  return seen.size === 0 ? { failure: ["untrusted", "log-unknown"] } : { witnesses };
}

async function checkInclusion(findings, envelope, trust) {
  const inclusion = envelope.get("inclusion");
  if (inclusion === undefined) {
    return;
  }
  if (trust.logKeys.size === 0) {
    findings.note("inclusion-not-checked");
    return;
  }
  findings.inclusion = "invalid";
  const checkpoint = findings.attempt("inclusion", () => readCheckpoint(inclusion.get("checkpoint")));
  if (checkpoint === null) {
    return;
  }
  const { failure, witnesses } = await checkLog(checkpoint, trust);
  if (failure) {
    [findings.inclusion] = failure;
    findings.fail("inclusion", failure[1]);
    return;
  }
  const [index, size] = ["leafIndex", "treeSize"].map((name) => Number(inclusion.get(name).text));
  if (size !== checkpoint.size || index >= size) {
    findings.fail("inclusion", "tree-size");
    return;
  }
  const path = inclusion.get("hashes").map(decodeBase64);
  if (path.some((hash) => hash?.length !== 32)) {
    findings.fail("inclusion", "hash-form");
    return;
  }
  const root = await rootOf(encoder.encode(inclusion.get("leaf")), index, size, path);
  if (root === null || hex(root) !== hex(checkpoint.root)) {
    findings.fail("inclusion", "path");
    return;
  }
  const leaf = findings.attempt("inclusion", () => readPayload(inclusion.get("leaf"), leafForm));
  if (leaf === null) {
    return;
  }
  if (leaf.payloadSha256 !== (await hexSHA256(envelope.get("payload")))) {
    findings.fail("inclusion", "another-record");
    return;
  }
  findings.inclusion = "valid";
  findings.note("included", `${checkpoint.origin}, ${index} / ${size}`);
  if (witnesses.length > 0) {
    findings.note("cosignatures", witnesses.join(", "));
  }
}

const isAbout = async (record, envelope, status) =>
  status.publicId === record.publicId && status.payloadSha256 === (await hexSHA256(envelope.get("payload")));

const isAhead = (status, now) => instant(status.observedAt) > BigInt(now.getTime()) * 1000n + clockTolerance;

// checkAsOf is checkObservation for the state as of an earlier moment, which never
// becomes the observed status.
async function checkAsOf(findings, envelope, trust, now) {
  const signed = envelope.get("statusAsOf");
  if (signed === undefined) {
    return;
  }
  const { failure } = await checkSigned(signed, trust);
  if (failure) {
    [findings.statusAsOf] = failure;
    findings.fail("history", failure[1]);
    return;
  }
  findings.statusAsOf = "invalid";
  const status = findings.attempt("history", () => readPayload(signed.get("payload"), statusAsOfForm));
  if (status === null) {
    return;
  }
  const asOf = instant(status.asOf);
  if (!(await isAbout(findings.record, envelope, status))) {
    findings.fail("history", "another-record");
  } else if (isAhead(status, now)) {
    findings.fail("history", "in-future");
  } else if (asOf < instant(findings.record.receivedAt)) {
    findings.fail("history", "before-record");
  } else if (asOf > instant(status.observedAt) || status.asOfSequence > status.sequence) {
    findings.fail("history", "after-observed");
  } else {
    const { status: asOfStatus, asOf: at, asOfSequence } = status;
    Object.assign(findings, { statusAsOf: "valid", asOfStatus, asOf: at, asOfSequence });
    if (asOfStatus === "revoked") {
      findings.fail("history", "revoked", at);
    } else {
      findings.note("history", at);
    }
  }
}

function readEnvelope(value) {
  const optional = { references: object, statusObservation: object, statusAsOf: object, inclusion: object };
  readSigned(value, { contract: constant("integrity-evidence-v1"), ...signedForm, ...optional }, Object.keys(optional));
  if (value.has("references")) {
    closed(value.get("references"), referencesShape, [], "/references");
  }
  if (value.has("statusObservation")) {
    readSigned(value.get("statusObservation"), signedForm, [], "/statusObservation");
  }
  if (value.has("statusAsOf")) {
    readSigned(value.get("statusAsOf"), signedForm, [], "/statusAsOf");
  }
  if (value.has("inclusion")) {
    closed(value.get("inclusion"), inclusionForm, [], "/inclusion");
  }
  return value;
}

async function verifyReceipt(findings, envelope, trust, { now, document }) {
  if (findings.attempt("signature", () => readEnvelope(envelope)) === null) {
    return false;
  }
  const members = { references: "references", observation: "statusObservation", statusAsOf: "statusAsOf", inclusion: "inclusion" };
  for (const [finding, member] of Object.entries(members)) {
    if (!envelope.has(member)) {
      findings[finding] = "not-supplied";
    }
  }
  findings.record = await findings.payload(envelope, trust, recordForm);
  if (findings.record !== null) {
    await checkReferences(findings, envelope.get("references"));
    await checkObservation(findings, envelope, trust, now);
    await checkInclusion(findings, envelope, trust);
    await checkAsOf(findings, envelope, trust, now);
    findings.compare(document, findings.record);
  }
  return true;
}

// A certificate has no references, no observation, no history and no inclusion, so nothing is
// ever said about its validity now.
async function verifyCertificate(findings, signed, trust, { document }) {
  if (findings.attempt("signature", () => readSigned(signed)) === null) {
    return false;
  }
  findings.certificate = await findings.payload(signed, trust, certificateForm, ["title", "organizationName"]);
  if (findings.certificate !== null) {
    for (const part of ["references", "observation", "statusAsOf", "inclusion"]) {
      findings[part] = "not-supplied";
    }
    findings.note("certificate-state");
    findings.compare(document, findings.certificate);
  }
  return true;
}

/**
 * Verifies a receipt, or a downloaded certificate of the certification API (bytes),
 * against keys of parseTrustedKeys. What has no member contract is a certificate.
 *
 * now is the verifier's clock, a Date; document is {sha256, size} of a file to
 * compare, or absent. It proves the conserved signature, not present validity.
 * There is a failure exactly where reasons is not empty. It rejects only where the
 * program cannot check at all (see supported).
 */
export async function verify(bytes, trust, { now, document, requireReferences = false, requireCurrent = false, requireInclusion = false }) {
  const findings = new Findings();
  const value = findings.attempt("signature", () => anObject(decode(bytes, maxReceipt)));
  if (value === null) {
    return findings;
  }
  const judge = value.has("contract") ? verifyReceipt : verifyCertificate;
  if (await judge(findings, value, trust, { now, document })) {
    if (requireReferences && findings.references === "not-supplied") {
      findings.fail("references", "required");
    }
    if (requireCurrent && findings.observedStatus !== "current") {
      findings.fail("observation", "required");
    }
    if (requireInclusion && (findings.inclusion === "not-supplied" || findings.inclusion === "not-checked")) {
      findings.fail("inclusion", "required");
    }
  }
  return findings;
}
