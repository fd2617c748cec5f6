// The trusted-keys file: whom a verifier believes.

import { decodeBase64, decodeBase64URL, encodeBase64URL, encoder, hex, sha256 } from "./bytes.js";
import { anObject, anyTime, base64URL, closed, constant, list, matches, object, roundedUp, sha256Hex, text } from "./forms.js";
import { Refusal, decode } from "./strictjson.js";
import { readVerifierKey } from "./transparency.js";

const maxTrustedKeys = 1024 * 1024; // bytes
const maxCertificate = 8 * 1024; // bytes

export const keyNames = { keyId: text, publicKeyJwk: object, fingerprintSha256: text };

const derPrefix = Uint8Array.of(0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00); // SPKI of Ed25519, RFC 8410

/** The names that a raw key has. */
export async function namesOf(raw) {
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

// readNoteKeys reads keys of signed notes: of the log, of type 1, or of witnesses, of type 4. None of them may be a key
// that refused names.
async function readNoteKeys(entries, member, type, refused) {
  const kind = type === 1 ? "log-key" : "witness-key";
  const noteKeys = new Map(); // by name and key hash
  for (const [i, entry] of entries.entries()) {
    const at = `/${member}/${i}`;
    closed(entry, { name: text, keyHash: text, verifierKey: text }, [], at);
    const key = await readVerifierKey(entry.get("verifierKey"), type);
    if (key === null || entry.get("name") !== key.name || entry.get("keyHash") !== key.keyHash) {
      throw new Refusal(kind, at);
    }
    Object.assign(key, await namesOf(key.raw));
    if (refused(key)) {
      throw new Refusal(`${kind}-signs`, at);
    }
    const id = `${key.name}+${key.keyHash}`;
    if (noteKeys.has(id)) {
      throw new Refusal("duplicate", id);
    }
    noteKeys.set(id, key);
  }
  return noteKeys;
}

// loadTimestamps answers the reader of tokens and certificates, or null where it cannot be loaded: it is large, and only
// trust in timestamp authorities needs it.
async function loadTimestamps() {
  try {
    return await import("./timestamps.js");
  } catch {
    return null;
  }
}

// readAuthorities reads the pinned timestamp authorities: their certificates by name.
async function readAuthorities(entries, timestamps) {
  const authorities = new Map();
  const atMost = (most, least) => (value) => list(value) && value.length >= least && value.length <= most;
  if (!atMost(16, 0)(entries)) {
    throw new Refusal("format", "/timestampAuthorities");
  }
  for (const [i, entry] of entries.entries()) {
    const at = `/timestampAuthorities/${i}`;
    closed(entry, { name: matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/), certificates: atMost(8, 1) }, [], at);
    if (authorities.has(entry.get("name"))) {
      throw new Refusal("duplicate", entry.get("name"));
    }
    const seen = new Set();
    authorities.set(entry.get("name"), entry.get("certificates").map((certificate, j) => {
      const der = text(certificate) ? decodeBase64(certificate) : null;
      if (der === null || der.length > maxCertificate || seen.size === seen.add(certificate).size) {
        throw new Refusal("certificate", `${at}/certificates/${j}`);
      }
      try {
        return timestamps?.readCertificate(der);
      } catch (error) {
        throw error instanceof Refusal ? new Refusal("certificate", `${at}/certificates/${j}`) : error;
      }
    }));
  }
  return authorities;
}

const fileForm = {
  keys: list, keyStatus: object, revokedKeys: list, logKeys: list, witnessKeys: list, timestampAuthorities: list,
  critical: (value) => list(value) && value.length > 0 && value.every((name) => text(name) && name !== ""),
};
const lowerASCII = (name) => name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
const knownNames = Object.keys(fileForm).map(lowerASCII);

// readFile requires the members that are known and passes over those that are not, unless the file's own member critical
// names them (as in RFC 7515, section 4.1.11) or they are known but for the case of letters.
function readFile(value) {
  const known = new Map([...anObject(value)].filter(([name]) => Object.hasOwn(fileForm, name) || knownNames.includes(lowerASCII(name))));
  closed(known, fileForm, Object.keys(fileForm).filter((name) => name !== "keys"));
  const critical = known.get("critical") ?? [];
  for (const [i, name] of critical.entries()) {
    if (!value.has(name) || critical.indexOf(name) !== i) {
      throw new Refusal("format", `/critical/${i}`);
    }
    if (!known.has(name)) {
      throw new Refusal("critical", name);
    }
  }
  return known;
}

/**
 * Reads a trusted-keys file (bytes), or the bare array of its keys. One fault
 * refuses the file whole, with a Refusal, but for members that it does not know.
 */
export async function parseTrustedKeys(bytes) {
  let value = decode(bytes, maxTrustedKeys);
  if (list(value)) {
    value = new Map([["keys", value]]);
  }
  value = readFile(value);
  const keys = new Map();
  for (const [i, entry] of value.get("keys").entries()) {
    const key = await readKey(entry, `/keys/${i}`);
    if (keys.has(key.keyId)) {
      throw new Refusal("duplicate", key.keyId);
    }
    keys.set(key.keyId, key);
  }
  const revoked = new Set();
  const barred = new Map(); // revocations by keyId and by fingerprint
  const revokedForm = {
    keyId: base64URL(32), fingerprintSha256: matches(sha256Hex), reason: matches(/^(?:compromised|revoked)$/), since: anyTime,
  };
  for (const [i, entry] of (value.get("revokedKeys") ?? []).entries()) {
    closed(entry, revokedForm, [], `/revokedKeys/${i}`);
    if (revoked.has(entry.get("keyId"))) {
      throw new Refusal("duplicate", entry.get("keyId"));
    }
    revoked.add(entry.get("keyId"));
    const revocation = { keyId: entry.get("keyId"), fingerprintSha256: entry.get("fingerprintSha256"), since: entry.get("since"), from: roundedUp(entry.get("since")) };
    barred.set(revocation.keyId, revocation).set(revocation.fingerprintSha256, revocation);
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
  const revocation = ({ keyId, fingerprintSha256 }) => barred.get(keyId) ?? barred.get(fingerprintSha256);
  const logKeys = await readNoteKeys(value.get("logKeys") ?? [], "logKeys", 1, (key) => keys.has(key.keyId));
  const logIds = new Set([...logKeys.values()].map((key) => key.keyId));
  const witnessKeys = await readNoteKeys(value.get("witnessKeys") ?? [], "witnessKeys", 4,
    (key) => keys.has(key.keyId) || logIds.has(key.keyId) || revocation(key) !== undefined);
  const entries = value.get("timestampAuthorities") ?? [];
  const timestamps = entries.length > 0 ? await loadTimestamps() : null;
  const isRevoked = (keyId) => revocation({ keyId, fingerprintSha256: keys.get(keyId)?.fingerprintSha256 }) !== undefined;
  const authorities = await readAuthorities(entries, timestamps);
  const witnesses = new Set([...witnessKeys.values()].map(({ name }) => name)); // one may have several keys
  return { keys, revocation, isRevoked, logKeys, witnessKeys, witnesses, authorities, timestamps };
}
