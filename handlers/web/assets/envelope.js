// What a receipt, a certificate and the texts signed in them are made of.

import { decodeBase64, encoder } from "./bytes.js";
import { anObject, base64URL, closed, constant, integer, list, matches, normalTime, object, serviceTime, sha256Hex, text } from "./forms.js";
import { Numeral, Refusal, canonical, decodeText, parse } from "./strictjson.js";
import { readCheckpoint } from "./transparency.js";
import { keyNames } from "./trust.js";

const issuer = /^[^\u0000-\u001f\u007f]{1,512}$/u;
const published = /^[^\u0000-\u001f\u007f]{1,200}$/u;
const publicId = /^[a-z2-7]{26}$/;
const mimeType = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/; // RFC 6838, section 4.2
const reference = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

const signedForm = { payload: text, signature: text, ...keyNames };
const jwkForm = { kty: text, crv: text, x: text };
const pathForm = { leafIndex: integer(0), treeSize: integer(1), hashes: (value) => list(value) && value.every(text), checkpoint: text };
const inclusionForm = { leaf: text, ...pathForm };
const upToFour = (value) => list(value) && value.length >= 1 && value.length <= 4;
const stampForm = { ...pathForm, tokens: upToFour };
const tokenForm = { authority: text, genTime: text, token: text };
export const recordForm = {
  contract: constant("integrity-v1"), algorithm: constant("SHA-256"), timeSource: constant("service-clock"),
  issuer: matches(issuer), publicId: matches(publicId), sha256: matches(sha256Hex), sizeBytes: integer(0),
  mimeType: matches(mimeType), generatedAt: normalTime, receivedAt: serviceTime, referencesSha256: matches(sha256Hex),
};
const payloadHash = matches(sha256Hex);
export const leafForm = {
  contract: constant("integrity-leaf-v1"), type: matches(/^[a-z][a-z0-9_.]{0,63}$/), id: matches(/^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
  occurredAt: serviceTime, payloadSha256: (value) => value === null || payloadHash(value), bodySha256: matches(sha256Hex), nonce: base64URL(16),
};
export const statusForm = {
  contract: constant("integrity-status-v1"), publicId: matches(publicId), payloadSha256: matches(sha256Hex),
  status: matches(/^(?:current|superseded|revoked)$/), observedAt: serviceTime, sequence: integer(1),
};
export const statusAsOfForm = { ...statusForm, contract: constant("integrity-status-as-of-v1"), asOf: serviceTime, asOfSequence: integer(1) };
export const certificateForm = {
  contract: constant("certificate-v1"), algorithm: constant("SHA-256"), timeSource: constant("service-clock"),
  issuer: matches(issuer), publicId: matches(publicId), sha256: matches(sha256Hex), sizeBytes: integer(0), issuedAt: serviceTime,
  title: matches(published), organizationName: matches(published),
};
const anyInteger = integer(Number.MIN_SAFE_INTEGER);
const referencesShape = { companyReference: text, source: text, documentReference: text, version: anyInteger, salt: text };
export const referencesForm = {
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

const proofHeader = "c2sp.org/tlog-proof@v1\n";
const proofLines = /^extra ([A-Za-z0-9+/=]+)\nindex (0|[1-9][0-9]{0,15})\n((?:[A-Za-z0-9+/=]+\n)*)\n/;
const proofForm = { contract: constant("integrity-tlog-proof-v1"), leaf: text, ...signedForm, references: object };

// readProof reads the lines of a transparency log proof (C2SP tlog-proof@v1) after the first as the envelope whose parts
// it holds.
function readProof(lines) {
  const [data, inclusion] = readProofLines(lines, (value) => readSigned(value, proofForm, ["references"]));
  return readEnvelope(data.set("contract", "integrity-evidence-v1")).set("inclusion", inclusion);
}

// readProofLines answers the extra data of a proof and the inclusion, whose leaf it takes from there. The extra data is
// one JSON object in its RFC 8785 form, so no byte can change without a meaning.
function readProofLines(lines, read) {
  const found = proofLines.exec(lines);
  if (found === null || !Number.isSafeInteger(Number(found[2]))) {
    throw new Refusal("proof-form");
  }
  const hashes = found[3].split("\n").slice(0, -1);
  if (hashes.some((hash) => decodeBase64(hash)?.length !== 32)) {
    throw new Refusal("hash-form");
  }
  const note = lines.slice(found[0].length);
  const { size } = readCheckpoint(note);
  const extra = decodeBase64(found[1]);
  if (extra === null) {
    throw new Refusal("proof-form");
  }
  const written = decodeText(extra, extra.length);
  const data = read(parse(written));
  if (canonical(data) !== written) {
    throw new Refusal("not-canonical");
  }
  const inclusion = new Map([
    ["leaf", data.get("leaf")], ["leafIndex", new Numeral(found[2])], ["treeSize", new Numeral(`${size}`)], ["hashes", hashes], ["checkpoint", note],
  ]);
  data.delete("leaf");
  return [data, inclusion];
}

const maxKeySet = 256 * 1024; // bytes
const keySetProofForm = { contract: constant("integrity-key-set-proof-v1"), leaf: text, payload: text };
const keySetForm = { contract: constant("integrity-key-set-v1"), issuer: matches(issuer), trustedKeys: object };

// readKeySetProof reads the proof of published keys in at most so many bytes: their payload, issuer and trusted-keys file,
// and the inclusion.
export function readKeySetProof(bytes, most) {
  const whole = decodeText(bytes, most);
  if (!whole.startsWith(proofHeader)) {
    throw new Refusal("proof-form");
  }
  const [data, inclusion] = readProofLines(whole.slice(proofHeader.length), (value) => closed(value, keySetProofForm));
  const payload = data.get("payload");
  if (encoder.encode(payload).length > maxKeySet) {
    throw new Refusal("too-long", `${maxKeySet}`);
  }
  const value = closed(parse(payload, 9), keySetForm); // a file within the payload is one level deeper
  if (canonical(value) !== payload) {
    throw new Refusal("not-canonical");
  }
  return { payload, issuer: value.get("issuer"), file: encoder.encode(canonical(value.get("trustedKeys"))), inclusion };
}

/** Whether a text begins as a transparency log proof. */
export const isProof = (bytes) => encoder.encode(proofHeader).every((byte, i) => bytes[i] === byte);

// readFile reads the object in a text that was given to the verifier: an envelope, or a certificate if it has no contract. It
// says whether the text is a transparency log proof. The checkpoint of a proof may be of an empty tree: then the inclusion is invalid.
export function readFile(bytes, most) {
  const whole = decodeText(bytes, most);
  if (whole.startsWith(proofHeader)) {
    return [readProof(whole.slice(proofHeader.length)), true];
  }
  const value = anObject(parse(whole));
  return [value.has("contract") ? readEnvelope(value) : readSigned(value), false];
}

// readPayload reads signed text: its role first, then its members, then its form.
export function readPayload(payload, form, optional = []) {
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

// readEnvelope requires the members of evidence, each of its shape: what it says is judged later.
function readEnvelope(value) {
  const optional = { references: object, statusObservation: object, statusAsOf: object, inclusion: object, timestamps: upToFour };
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
  for (const [i, stamp] of (value.get("timestamps") ?? []).entries()) {
    closed(stamp, stampForm, [], `/timestamps/${i}`);
    stamp.get("tokens").forEach((token, j) => closed(token, tokenForm, [], `/timestamps/${i}/tokens/${j}`));
  }
  return value;
}
