// What the published vectors leave open, with keys made here.
import assert from "node:assert/strict";
import { test } from "node:test";

import { canonical, parse } from "./strictjson.js";
import { Refusal, parseTrustedKeys, verify } from "./verifier.js";

const encode = (text) => new TextEncoder().encode(text);
const base64URL = (bytes) => Buffer.from(bytes).toString("base64url");
const hash = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const json = (value) => encode(JSON.stringify(value));
const now = new Date("2026-11-20T12:00:00Z");

const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"]);
const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
const x = base64URL(raw);
const key = {
  keyId: base64URL(await hash(encode(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`))),
  publicKeyJwk: { kty: "OKP", crv: "Ed25519", x },
  fingerprintSha256: hex(await hash(await crypto.subtle.exportKey("spki", pair.publicKey))),
};
const trust = await parseTrustedKeys(json([key]));

async function sign(members) {
  const payload = canonical(parse(JSON.stringify(members)));
  return { payload, signature: base64URL(await crypto.subtle.sign({ name: "Ed25519" }, pair.privateKey, encode(payload))), ...key };
}

const common = { algorithm: "SHA-256", timeSource: "service-clock", issuer: "https://ledger.example", publicId: "a".repeat(26), sha256: "a".repeat(64), sizeBytes: 1 };
const record = { ...common, contract: "integrity-v1", mimeType: "text/plain", generatedAt: "2026-11-19T00:00:00Z", receivedAt: "2026-11-19T00:00:01Z", referencesSha256: "b".repeat(64) };
const certificate = { ...common, contract: "certificate-v1", issuedAt: "2026-11-19T00:00:01Z" };
const receipt = async (members = record, more = {}) => json({ contract: "integrity-evidence-v1", ...(await sign(members)), ...more });
const observed = async (receiptOf, change) => {
  const payloadSha256 = hex(await hash(encode((await sign(receiptOf)).payload)));
  return { contract: "integrity-status-v1", publicId: receiptOf.publicId, payloadSha256, status: "current", observedAt: "2026-11-20T00:00:00Z", sequence: 1, ...change };
};

test("a receipt that is right", async () => {
  const findings = await verify(await receipt(record, { statusObservation: await sign(await observed(record)) }), trust, { now });
  assert.deepEqual([findings.signature, findings.observation, findings.observedStatus, findings.reasons], ["valid", "valid", "current", []]);
});

test("an observation of another contract with the same members", async () => {
  const observation = await sign(await observed(record, { contract: "integrity-status-v2" }));
  const findings = await verify(await receipt(record, { statusObservation: observation }), trust, { now });
  assert.deepEqual([findings.signature, findings.observation, findings.observedStatus], ["valid", "invalid", null]);
});

test("a key that is revoked by its keyId alone", async () => {
  const revoked = { keyId: key.keyId, fingerprintSha256: "0".repeat(64), reason: "revoked", since: "2026-11-01T00:00:00Z" };
  const findings = await verify(await receipt(), await parseTrustedKeys(json({ keys: [key], revokedKeys: [revoked] })), { now });
  assert.equal(findings.signature, "untrusted");
});

test("S of a signature lies below L whatever the library allows", async () => {
  const { contract, ...signed } = JSON.parse(Buffer.from(await receipt()));
  const bytes = Buffer.from(signed.signature, "base64url");
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const s = BigInt(`0x${Buffer.from(bytes.subarray(32)).reverse().toString("hex")}`) + order;
  Buffer.from(s.toString(16).padStart(64, "0"), "hex").reverse().copy(bytes, 32);
  const subtle = Object.getPrototypeOf(crypto.subtle);
  const { verify: checked } = subtle;
  subtle.verify = async () => true;
  try {
    assert.equal((await verify(await receipt(), trust, { now })).signature, "valid");
    assert.equal((await verify(json({ contract, ...signed, signature: base64URL(bytes) }), trust, { now })).signature, "invalid");
  } finally {
    subtle.verify = checked;
  }
});

test("a proof or a token that could not be checked is not called missing", async () => {
  const path = { leafIndex: 0, treeSize: 1, hashes: [], checkpoint: "" };
  const supplied = { inclusion: { leaf: "", ...path }, timestamps: [{ ...path, tokens: [{ authority: "a", genTime: "", token: "" }] }] };
  for (const [more, codes] of [[supplied, ["log-key-missing", "tokens-unchecked"]], [{}, ["required", "required"]]]) {
    const { reasons } = await verify(await receipt(record, more), trust, { now, requireInclusion: true, requireTimestamp: true });
    assert.deepEqual(reasons.map(({ part, code }) => [part, code]), [["inclusion", codes[0]], ["time", codes[1]]]);
  }
});

test("a document's hash is of either case", async () => {
  for (const [sha256, match] of [["A".repeat(64), true], ["b".repeat(64), false]]) {
    assert.equal((await verify(await receipt(), trust, { now, document: { sha256, size: 1 } })).fileMatch, match);
  }
});

test("certificates", async () => {
  const right = await verify(json(await sign({ ...certificate, title: "Título", organizationName: "Ltd" })), trust, { now, document: { sha256: common.sha256, size: 1 } });
  assert.deepEqual(
    [right.signature, right.certificate.title, right.fileMatch, right.references, right.observation, right.inclusion, right.reasons],
    ["valid", "Título", true, "not-supplied", "not-supplied", "not-supplied", []],
  );
  for (const members of [record, { ...certificate, contract: "certificate-v2" }, { ...certificate, reviewer: "x" }, { ...certificate, title: "" }, { ...certificate, issuedAt: "2026-11-19T00:00:01+00:00" }]) {
    const wrong = await verify(json(await sign(members)), trust, { now });
    assert.deepEqual([wrong.signature, wrong.certificate, wrong.references], ["invalid", null, "not-checked"]);
  }
  assert.equal((await verify(json({ ...(await sign(certificate)), references: {} }), trust, { now })).signature, "invalid");
  assert.equal((await verify(await receipt(certificate), trust, { now })).signature, "invalid");
});

test("the depth is 8", async () => {
  const keys = (depth) => `{"keys":[],"logKeys":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)}}`;
  await assert.rejects(parseTrustedKeys(encode(keys(8))), (error) => error instanceof Refusal && error.code === "type"); // read, and no log key
  await assert.rejects(parseTrustedKeys(encode(keys(9))), (error) => error instanceof Refusal && error.code === "depth");
});

test("JSON that engines read differently is refused", () => {
  const wrong = [
    "", " ", "{", "[1,]", "{,}", '{"a":1,}', "[1 2]", "{a:1}", "'a'", "01", "-", "1.", ".5", "+1", "1e", "NaN", "-0", "1.0", "1e0", "-0.5e+3", "9007199254740992", "-9007199254740992", "tru", '"\t"', '"\\x41"', '"\\u12"', "[1]]",
    "\u00a0[]", "/**/[]", '"\ud800"', '"\\ud800\\u0041"', '"\\udc00"', '"\\u0000"', '{"a":1,"\\u0061":1}', '{"__proto__":1,"__proto__":1}', "\ufeff{}",
  ];
  for (const text of wrong) {
    assert.throws(() => parse(text), Refusal, JSON.stringify(text));
  }
  for (const text of ["null", "true", " [ ] ", "0", "-1", "9007199254740991", "-9007199254740991", '{"a":{"b":[1,"\\ud83d\\ude00"]}}', '{"__proto__":1}']) {
    parse(text);
  }
  assert.equal(canonical(parse('{"\u20ac":1,"\\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":"\\u002F\\u0007\u2028"}')),
    '{"\\r":2,"1":4,"\u0080":6,"\u00f6":"/\\u0007\u2028","\u20ac":1,"\ud83d\ude00":5,"\ufb33":3}');
});

test("a long text is read without running out of anything", () => {
  assert.equal(parse(`"${"\\u0041".repeat(150_000)}"`).length, 150_000);
  assert.throws(() => parse(`"${"a".repeat(1_000_000)}`), Refusal);
  assert.throws(() => parse("[".repeat(1_000_000)), Refusal);
});

test("a refusal does not repeat a long name", async () => {
  const name = "a".repeat(400_000);
  for (const text of [`{"${name}":0}`, `{"${name}":0,"${name}":0}`, `{"keys":[],"keyStatus":{"${name}":{"status":"active","since":"2026-01-01T00:00:00Z"}}}`]) {
    await assert.rejects(parseTrustedKeys(encode(text)), (error) => error instanceof Refusal && error.message.length < 1000);
  }
});
