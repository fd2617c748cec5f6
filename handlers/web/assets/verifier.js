// Verifies receipts and certificates offline: the steps of the service's public
// description of its evidence, with WebCrypto and nothing else. It runs in browsers
// and in Node.js, reads no clock and no storage, and never trusts a key from a
// receipt that is not pinned. If trust in timestamp authorities is given, it loads
// timestamps.js from its own directory; it makes no other network request.
//
// A verdict is a set of findings, never one boolean. A finding is "valid",
// "invalid", "untrusted" (the key is not pinned, or is revoked), "not-supplied" or
// "not-checked" (an earlier part failed). Reasons are the failures; notes are what
// a reader must know besides. Both are codes for the caller to put into words.

import { decodeBase64, decodeBase64URL, encoder, hex, hexSHA256, sha256 } from "./bytes.js";
import { supported, verifies } from "./ed25519.js";
import { certificateForm, isProof, leafForm, readFile, readKeySetProof, readPayload, recordForm, referencesForm, statusAsOfForm, statusForm } from "./envelope.js";
import { closed, formatTime, instant } from "./forms.js";
import { Refusal, Untrusted, canonical } from "./strictjson.js";
import { cosignature, cosignedAt, isURL, logName, logNameOf, readCheckpoint, rootOf } from "./transparency.js";
import { namesOf, parseTrustedKeys } from "./trust.js";

export { Refusal, isProof, parseTrustedKeys, supported };

const maxReceipt = 64 * 1024; // bytes
const maxKeySetProof = 1024 * 1024; // bytes
const clockTolerance = 300_000_000n; // microseconds

const latest = (now) => BigInt(now.getTime()) * 1000n + clockTolerance;

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
  if (trust.revocation(key) !== undefined) {
    return { failure: ["untrusted", "key-revoked"] };
  }
  if (!(await verifies(key.raw, signature, encoder.encode(signed.get("payload"))))) {
    return { failure: ["invalid", "signature"] };
  }
  return isNamed(signed, key) ? { key } : { failure: ["invalid", "key-differs"] };
}

// isNamed reports whether the names in a signed part identify a key.
function isNamed(signed, key) {
  const jwk = signed.get("publicKeyJwk");
  return (
    jwk.get("kty") === "OKP" && jwk.get("crv") === "Ed25519" && jwk.get("x") === key.x &&
    signed.get("keyId") === key.keyId && signed.get("fingerprintSha256") === key.fingerprintSha256
  );
}

// ---- Verdicts

/** The findings about a receipt or certificate, part by part. Null means not established. */
class Findings {
  isEvidence = false; // whether it has the form of a receipt or a certificate, whoever signed it
  signature = "invalid";
  references = "not-checked";
  observation = "not-checked";
  observedStatus = null;
  observedAt = null;
  fileMatch = null;
  inclusion = "not-checked";
  witnessed = null; // how many pinned witnesses cosigned the checkpoint of a valid inclusion
  time = "not-checked"; // the tokens of timestamp authorities
  existedBefore = null; // by the word of timeAuthority, which is not when it was registered
  timeAuthority = null;
  statusAsOf = "not-checked"; // the state as of an earlier moment: history, never the observed status
  asOfStatus = null;
  asOf = null;
  asOfSequence = null;
  key = null; // the names of the pinned key under which the signature is valid
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
      this.failed(part, error);
      return null;
    }
  }

  // failed puts a refusal among the failures, and answers what it makes of the finding.
  failed(part, error) {
    if (!(error instanceof Refusal)) {
      throw error;
    }
    this.fail(part, error.code, error.detail);
    return error instanceof Untrusted ? "untrusted" : "invalid";
  }

  // payload checks the signature and then reads the signed text, or returns null.
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
      this.key = key;
      if (key.status === "retired") {
        this.note("key-retired");
      }
    }
    return payload;
  }

  // demand adds a failure for each part that the caller requires and that is missing or was not checked.
  demand(trust, { requireReferences = false, requireCurrent = false, requireInclusion = false, requireTimestamp = false, requireWitnesses = 0 }) {
    const missing = (finding) => finding === "not-supplied";
    const unchecked = (finding) => finding === "not-checked" && this.record !== null; // else the signature's failure says enough
    if (requireReferences && this.references === "not-supplied") {
      this.fail("references", "required");
    }
    if (requireCurrent && this.observedStatus !== "current") {
      this.fail("observation", "required");
    }
    if (requireInclusion && missing(this.inclusion)) {
      this.fail("inclusion", "required");
    } else if (requireInclusion && unchecked(this.inclusion) && trust.logKeys.size === 0) {
      this.fail("inclusion", "log-key-missing");
    } else if (requireInclusion && unchecked(this.inclusion)) {
      this.fail("inclusion", "other-leaf");
    }
    if (requireTimestamp && missing(this.time)) {
      this.fail("time", "required");
    } else if (requireTimestamp && unchecked(this.time)) {
      this.fail("time", "tokens-unchecked");
    }
    if (requireWitnesses > 0 && (this.witnessed ?? 0) < requireWitnesses) {
      this.fail("witnesses", "required");
    }
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

async function checkObservation(findings, envelope, trust, now, accepted) {
  const observation = envelope.get("statusObservation");
  if (observation === undefined) {
    findings.note("no-observation");
    return;
  }
  const { failure } = await checkSigned(observation, trust);
  if (failure) {
    [findings.observation] = failure;
    judgeState(findings, "observation", observation, trust, failure, accepted);
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

// ---- The transparency log

// openCheckpoint reads a checkpoint and judges the log's signatures: each by a pinned key of its origin must verify and
// stand once. since is when the last of the keys that signed was revoked, in microseconds, and null where one is not.
async function openCheckpoint(note, trust) {
  const checkpoint = readCheckpoint(note);
  const seen = new Set();
  let since = 0n;
  for (const { name, keyHash, signature } of checkpoint.signatures) {
    const key = trust.logKeys.get(`${name}+${keyHash}`);
    if (key === undefined || name !== checkpoint.origin) {
      continue;
    }
    if (seen.has(key) || signature.length !== 64 || !(await verifies(key.raw, signature, encoder.encode(checkpoint.signed)))) {
      throw new Refusal("checkpoint-signature");
    }
    seen.add(key);
    const revoked = trust.revocation(key);
    if (revoked === undefined) {
      since = null;
    } else if (since !== null && revoked.from > since) {
      since = revoked.from;
    }
  }
  if (seen.size === 0) {
    throw new Untrusted("log-unknown");
  }
  return { ...checkpoint, since };
}

// holds requires that an audit path, of an inclusion or a stamped checkpoint, leads from the leaf to the root.
async function holds(checkpoint, proof, leaf) {
  const [index, size] = ["leafIndex", "treeSize"].map((name) => Number(proof.get(name).text));
  if (size !== checkpoint.size || index >= size) {
    throw new Refusal("tree-size");
  }
  const path = proof.get("hashes").map(decodeBase64);
  if (path.some((hash) => hash?.length !== 32)) {
    throw new Refusal("hash-form");
  }
  const root = await rootOf(encoder.encode(leaf), index, size, path);
  if (root === null || hex(root) !== hex(checkpoint.root)) {
    throw new Refusal("path");
  }
  return `${checkpoint.origin}, ${index} / ${size}`;
}

// OtherLeaf says that a leaf is of an event that is no registration, such as a healed record: nothing is checked.
class OtherLeaf extends Error {}

// checkLeaf requires the leaf of the registration of this payload. One of another type that names no other payload is
// an OtherLeaf.
async function checkLeaf(envelope) {
  const leaf = readPayload(envelope.get("inclusion").get("leaf"), leafForm);
  const registered = leaf.type === "integrity.registered";
  if ((registered || leaf.payloadSha256 !== null) && leaf.payloadSha256 !== (await hexSHA256(envelope.get("payload")))) {
    throw new Refusal("another-record");
  }
  if (!registered) {
    throw new OtherLeaf();
  }
}

// cosigners are the names of the pinned witnesses, with a time of each, whose cosignatures hold and say a time that is
// not ahead of now and, where one is given, before it.
async function cosigners(checkpoint, trust, now, before = null) {
  const names = new Map();
  for (const { name, keyHash, signature } of checkpoint.signatures) {
    const key = trust.witnessKeys.get(`${name}+${keyHash}`);
    const at = key && (await cosignedAt(key, signature, checkpoint.signed));
    if (at && at <= latest(now) && (before === null || at < before)) {
      names.set(name, at);
    }
  }
  return names;
}

// openInclusion takes the proof through its steps. The findings on time come before it: by them a log whose key was
// revoked may still show that it held the record.
async function openInclusion(findings, envelope, trust, { now, requireWitnesses }) {
  const inclusion = envelope.get("inclusion");
  const checkpoint = await openCheckpoint(inclusion.get("checkpoint"), trust);
  const place = await holds(checkpoint, inclusion, inclusion.get("leaf"));
  await checkLeaf(envelope);
  if (checkpoint.since !== null) {
    const names = await cosigners(checkpoint, trust, now, checkpoint.since);
    const since = formatTime(checkpoint.since);
    if (findings.time === "valid" && instant(findings.existedBefore) < checkpoint.since) {
      findings.note("log-revoked-stamped", since);
    } else if (requireWitnesses > 0 && names.size >= requireWitnesses) {
      findings.note("log-revoked-witnessed", `${since}, ${[...names.keys()].join(", ")}`);
    } else {
      throw new Untrusted("log-revoked", since);
    }
  }
  findings.inclusion = "valid";
  findings.note("included", place);
  return checkpoint;
}

async function checkInclusion(findings, envelope, trust, options) {
  if (!envelope.has("inclusion")) {
    return;
  }
  if (trust.logKeys.size === 0) {
    findings.note("inclusion-not-checked");
    return;
  }
  let checkpoint;
  try {
    checkpoint = await openInclusion(findings, envelope, trust, options);
  } catch (error) {
    if (error instanceof OtherLeaf) {
      findings.note("other-leaf");
    } else {
      findings.inclusion = findings.failed("inclusion", error);
    }
    return;
  }
  const counted = await cosigners(checkpoint, trust, options.now);
  if (trust.witnessKeys.size > 0) {
    findings.witnessed = counted.size;
  }
  const others = checkpoint.signatures.filter(({ name, keyHash, signature }) =>
    signature.length === cosignature && logName.test(name) && !counted.has(name) &&
    !(name === checkpoint.origin && trust.logKeys.has(`${name}+${keyHash}`)));
  if (counted.size > 0) {
    findings.note("witnesses", [...counted.keys()].join(", "));
  }
  if (others.length > 0) {
    findings.note("cosignatures", others.map(({ name }) => name).join(", "));
  }
}

// ---- Tokens of timestamp authorities

// checkStamp returns the latest time, in microseconds, by which the stamped text existed, by a token of a pinned authority.
async function checkStamp(token, imprint, trust, receivedAt, now) {
  const authority = token.get("authority");
  const der = decodeBase64(token.get("token"));
  if (der === null) {
    throw new Refusal("token-form", authority);
  }
  let stamp;
  try {
    stamp = await trust.timestamps.checkToken(der, imprint, trust.authorities.get(authority));
  } catch (error) {
    if (error instanceof Refusal) {
      error.detail = authority;
    }
    throw error;
  }
  if (token.get("genTime") !== formatTime(stamp.genTime)) {
    throw new Refusal("token-time", authority);
  }
  if (stamp.genTime > latest(now)) {
    throw new Refusal("in-future", authority);
  }
  if (stamp.latest < instant(receivedAt) - clockTolerance) {
    throw new Refusal("token-before-record", authority);
  }
  return stamp.latest;
}

// judgeStamps takes the timestamps through their steps, of which the first that fails ends the part. It answers the
// earliest time before which the record existed, and who says so; note takes what a reader must know besides.
async function judgeStamps(envelope, trust, receivedAt, now, note) {
  if (!envelope.has("inclusion")) {
    throw new Refusal("needs-inclusion");
  }
  await checkLeaf(envelope);
  let earliest = null;
  let passed = new Untrusted("authority-unknown"); // why the last token that was passed over does not count
  for (const stamp of envelope.get("timestamps")) {
    const checkpoint = await openCheckpoint(stamp.get("checkpoint"), trust);
    await holds(checkpoint, stamp, envelope.get("inclusion").get("leaf"));
    const imprint = await sha256(encoder.encode(stamp.get("checkpoint")));
    for (const token of stamp.get("tokens")) {
      const authority = token.get("authority");
      if (!trust.authorities.has(authority)) {
        note("token-not-checked", authority);
        continue;
      }
      const before = await checkStamp(token, imprint, trust, receivedAt, now);
      if (checkpoint.since !== null && before >= checkpoint.since) {
        passed = new Untrusted("log-revoked", formatTime(checkpoint.since));
        note("token-too-late", `${authority}, ${formatTime(checkpoint.since)}`);
      } else if (earliest === null || before < earliest.before) {
        earliest = { before, authority };
      }
    }
  }
  if (earliest === null) {
    throw passed;
  }
  return earliest;
}

// judgeTime judges the timestamps of a record, and answers how to put that into the findings: {finding, before, tell}.
async function judgeTime(envelope, trust, receivedAt, now) {
  const told = [];
  const note = (...words) => told.push((findings) => findings.note(...words));
  const judged = (finding, before = null) => ({
    before,
    tell: (findings) => {
      findings.time = finding;
      told.forEach((put) => put(findings));
    },
  });
  if (!envelope.has("timestamps")) {
    return judged("not-supplied");
  }
  if (trust.authorities.size === 0 || trust.logKeys.size === 0) {
    note("time-not-checked");
    return judged("not-checked");
  }
  if (trust.timestamps === null) {
    note("time-cannot-check");
    return judged("not-checked");
  }
  try {
    const { before, authority } = await judgeStamps(envelope, trust, receivedAt, now, note);
    told.push((findings) => Object.assign(findings, { existedBefore: formatTime(before), timeAuthority: authority }));
    note("existed-before");
    return judged("valid", before);
  } catch (error) {
    if (error instanceof OtherLeaf) {
      note("other-leaf-time");
      return judged("not-checked");
    }
    if (error.name === "NotSupportedError") {
      note("time-cannot-check"); // a kind of key that this program does not have
      return judged("not-checked");
    }
    if (!(error instanceof Refusal)) {
      throw error;
    }
    told.push((findings) => findings.failed("time", error));
    return judged(error instanceof Untrusted ? "untrusted" : "invalid");
  }
}

// acceptStamped is steps 2 to 5 for a record whose key is revoked: it stands where a pinned authority stamped it before.
// A published file leaves a revoked key out of its keys and names it by two hashes: then it is the receipt's, where both
// are the hashes of that key.
async function acceptStamped(findings, envelope, trust, now) {
  const refuse = (finding, code, detail) => {
    findings.signature = finding;
    findings.fail("signature", code, detail);
    return null;
  };
  let key = trust.keys.get(envelope.get("keyId"));
  if (key === undefined) {
    const x = envelope.get("publicKeyJwk").get("x");
    const raw = decodeBase64URL(x, 32);
    key = raw && { x, raw, ...(await namesOf(raw)) };
  }
  const revoked = key && trust.revocation(key);
  if (!revoked || !isNamed(envelope, key) || revoked.keyId !== key.keyId || revoked.fingerprintSha256 !== key.fingerprintSha256) {
    return refuse("untrusted", "revoked-key-differs");
  }
  const signature = decodeBase64URL(envelope.get("signature"), 64);
  if (signature === null || !(await verifies(key.raw, signature, encoder.encode(envelope.get("payload"))))) {
    return refuse("invalid", signature === null ? "signature-form" : "signature");
  }
  const record = findings.attempt("signature", () => readPayload(envelope.get("payload"), recordForm));
  if (record === null) {
    return null;
  }
  const { before, tell } = await judgeTime(envelope, trust, record.receivedAt, now);
  if (before === null || before >= revoked.from) {
    return refuse("untrusted", "revoked-unstamped", revoked.since);
  }
  Object.assign(findings, { signature: "valid", key });
  tell(findings);
  findings.note("key-revoked-stamped", revoked.since);
  return record;
}

// judgeState is a failure of a signed state, but for one under the revoked key of a record that stands: it says nothing.
function judgeState(findings, part, signed, trust, [finding, code], accepted) {
  if (finding === "untrusted" && accepted && trust.isRevoked(signed.get("keyId"))) {
    findings.note("state-says-nothing");
  } else {
    findings.fail(part, code);
  }
}

const isAbout = async (record, envelope, status) =>
  status.publicId === record.publicId && status.payloadSha256 === (await hexSHA256(envelope.get("payload")));

const isAhead = (status, now) => instant(status.observedAt) > latest(now);

// checkAsOf is checkObservation for the state as of an earlier moment, which never
// becomes the observed status.
async function checkAsOf(findings, envelope, trust, now, accepted) {
  const signed = envelope.get("statusAsOf");
  if (signed === undefined) {
    return;
  }
  const { failure } = await checkSigned(signed, trust);
  if (failure) {
    [findings.statusAsOf] = failure;
    judgeState(findings, "history", signed, trust, failure, accepted);
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

async function verifyReceipt(findings, envelope, trust, options) {
  findings.isEvidence = true;
  const members = { references: "references", observation: "statusObservation", statusAsOf: "statusAsOf", inclusion: "inclusion", time: "timestamps" };
  for (const [finding, member] of Object.entries(members)) {
    if (!envelope.has(member)) {
      findings[finding] = "not-supplied";
    }
  }
  const { now, document, acceptStampedBeforeRevocation = false } = options;
  const accepts = acceptStampedBeforeRevocation && trust.isRevoked(envelope.get("keyId"));
  if (accepts) {
    findings.record = await acceptStamped(findings, envelope, trust, now);
  } else {
    findings.record = await findings.payload(envelope, trust, recordForm);
  }
  if (findings.record !== null) {
    if (!accepts) {
      (await judgeTime(envelope, trust, findings.record.receivedAt, now)).tell(findings);
    }
    await checkReferences(findings, envelope.get("references"));
    await checkObservation(findings, envelope, trust, now, accepts);
    await checkInclusion(findings, envelope, trust, options);
    await checkAsOf(findings, envelope, trust, now, accepts);
    findings.compare(document, findings.record);
  }
}

// A certificate has no references, no observation, no history and no inclusion, so nothing is
// ever said about its validity now.
async function verifyCertificate(findings, signed, trust, { document }) {
  findings.isEvidence = true;
  findings.certificate = await findings.payload(signed, trust, certificateForm, ["title", "organizationName"]);
  if (findings.certificate !== null) {
    for (const part of ["references", "observation", "statusAsOf", "inclusion", "time"]) {
      findings[part] = "not-supplied";
    }
    findings.note("certificate-state");
    findings.compare(document, findings.certificate);
  }
}

// checkRequired refuses any other number of witnesses: each comparison with NaN is false, so that none would be required.
function checkRequired({ requireWitnesses = 0 }) {
  if (!Number.isSafeInteger(requireWitnesses) || requireWitnesses < 0) {
    throw new TypeError("requireWitnesses must be a whole number of 0 or more");
  }
}

/**
 * Verifies a receipt, or a downloaded certificate of the certification API (bytes),
 * against keys of parseTrustedKeys. Evidence without the member contract is a certificate;
 * a transparency log proof (C2SP tlog-proof@v1) is a receipt whose inclusion is required.
 *
 * now is the verifier's clock, a Date; document is {sha256, size} of a file to
 * compare, or absent. requireTimestamp makes anything but a valid token of a pinned
 * authority a failure; requireWitnesses is how many pinned witnesses must have cosigned.
 * acceptStampedBeforeRevocation lets a record stand whose signing key was revoked,
 * where a pinned authority stamped it before.
 *
 * It proves the conserved signature, not present validity. There is a failure exactly
 * where reasons is not empty. It rejects only where the program cannot check at all
 * (see supported), or where requireWitnesses is no whole number of 0 or more.
 */
export async function verify(bytes, trust, options) {
  checkRequired(options);
  const findings = new Findings();
  const read = findings.attempt("signature", () => readFile(bytes, maxReceipt));
  if (read === null) {
    return findings;
  }
  const [value, isProof] = read;
  const judge = value.has("contract") ? verifyReceipt : verifyCertificate;
  await judge(findings, value, trust, options);
  findings.demand(trust, isProof ? { ...options, requireInclusion: true } : options); // a proof that was not checked proves nothing
  return findings;
}

/** Whether a file (bytes) has the form of a receipt, a certificate or the proof of a record, whoever signed it. */
export function isEvidence(bytes) {
  try {
    return readFile(bytes, maxReceipt) !== null;
  } catch (error) {
    if (error instanceof Refusal) {
      return false;
    }
    throw error;
  }
}

/**
 * Verifies the proof of published keys (bytes, of GET /api/public/log/keys) against
 * what a reader pins: the log keys, witness keys and revocations of trust, which
 * parseTrustedKeys answers; its signing keys do not matter. Without a log key at least
 * one pinned witness must have cosigned, and origin must name the log, because a
 * witness cosigns many. The log must be named after the issuer of the keys:
 * https://ledger.example publishes in ledger.example/log. To accept any other issuer in
 * this log, name it in issuer.
 *
 * It answers the keys as parseTrustedKeys does (trust), with the facts that the proof shows:
 * everyone who sees this log sees that the service published these keys. That does
 * not show that the keys are good, nor that no later ones were published. It rejects
 * with a Refusal where the proof does not hold.
 */
export async function verifyKeySet(bytes, pinned, { now, origin = "", issuer: expected = "", requireWitnesses = 0 }) {
  checkRequired({ requireWitnesses });
  const { payload, issuer, file, inclusion } = readKeySetProof(bytes, maxKeySetProof);
  const trust = await parseTrustedKeys(file);
  const note = inclusion.get("checkpoint");
  const logKeyPinned = pinned.logKeys.size > 0;
  if (!logKeyPinned && (pinned.witnessKeys.size === 0 || origin === "")) {
    throw new Refusal("nothing-pinned");
  }
  const checkpoint = logKeyPinned ? await openCheckpoint(note, pinned) : { ...readCheckpoint(note), since: null };
  if (checkpoint.since !== null) {
    throw new Untrusted("log-revoked", formatTime(checkpoint.since));
  }
  if (origin !== "" && checkpoint.origin !== origin) {
    throw new Refusal("another-log", checkpoint.origin);
  }
  const cosigned = await cosigners(checkpoint, pinned, now);
  if (cosigned.size < Math.max(requireWitnesses, logKeyPinned ? 0 : 1)) {
    throw new Refusal("witnesses-missing", `${cosigned.size}`);
  }
  await holds(checkpoint, inclusion, inclusion.get("leaf"));
  const leaf = readPayload(inclusion.get("leaf"), leafForm);
  const payloadSha256 = await hexSHA256(payload);
  if (leaf.type !== "keys.published" || leaf.payloadSha256 !== payloadSha256) {
    throw new Refusal("another-key-set");
  }
  if (expected !== "" && issuer !== expected) {
    throw new Refusal("another-issuer", issuer);
  }
  if (expected === "" && logNameOf(issuer) !== checkpoint.origin) {
    throw new Refusal("issuer-of-another-log", issuer);
  }
  let logKeyListed = true;
  try {
    if ((await openCheckpoint(note, trust)).since !== null) {
      throw new Refusal("log-key-revoked-itself");
    }
  } catch (error) {
    if (!(error instanceof Untrusted)) {
      throw error;
    }
    logKeyListed = false;
  }
  const times = [...cosigned.values()];
  return {
    trust, file, issuer, publishedAt: leaf.occurredAt, payloadSha256, origin: checkpoint.origin, treeSize: checkpoint.size,
    leafIndex: Number(inclusion.get("leafIndex").text),
    witnesses: [...pinned.witnesses].filter((name) => cosigned.has(name)), logKeyPinned, logKeyListed,
    cosignedAt: times.length > 0 ? formatTime(times.reduce((a, b) => (a > b ? a : b))) : null,
  };
}

// isVerifierKey recognizes <name>+<key hash>+<base64> by the key, of type 1 or 4: names may be like URLs.
const isVerifierKey = (word) => {
  const key = decodeBase64(word.split("+").slice(2).join("+"));
  return key?.length === 33 && (key[0] === 1 || key[0] === 4);
};

/**
 * Reads what a person pins: verifier keys of the log and of witnesses, the name of the
 * log, and the issuer where it is a URL, separated by white space. A verifier key is
 * <name>+<key hash>+<base64>.
 */
export async function pins(text) {
  const all = text.split(/\s+/u).filter((word) => word !== "");
  const isIssuer = (word) => !isVerifierKey(word) && isURL(word);
  const keys = all.filter((word) => word.includes("+") && !isIssuer(word)).map((verifierKey) => {
    const [name, keyHash, ...rest] = verifierKey.split("+");
    return { witness: decodeBase64(rest.join("+"))?.[0] === 4, key: { name, keyHash, verifierKey } };
  });
  const issuers = all.filter(isIssuer);
  if (new Set(issuers).size > 1) {
    throw new Refusal("two-issuers", issuers.join(" "));
  }
  const origins = all.filter((word) => !word.includes("+") && !isIssuer(word));
  if (new Set(origins).size > 1) {
    throw new Refusal("two-logs", origins.join(" "));
  }
  const ofKind = (witness) => keys.filter((one) => one.witness === witness).map(({ key }) => key);
  const file = { keys: [], logKeys: ofKind(false), witnessKeys: ofKind(true) };
  return {
    trust: await parseTrustedKeys(encoder.encode(JSON.stringify(file))),
    origin: origins[0] ?? "",
    issuer: issuers[0] ?? "",
  };
}
