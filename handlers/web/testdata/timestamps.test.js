// What the published vectors leave open about tokens of timestamp authorities, with the evidence that they hold.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { copyFile, mkdir, readdir } from "node:fs/promises";
import { test } from "node:test";

import { Refusal, parseTrustedKeys, verify } from "./verifier.js";
import { checkToken, readCertificate } from "./timestamps.js";

const file = JSON.parse(readFileSync("vectors.json", "utf8"));
const vector = file.vectors.find(({ name }) => name === "token form: the pinned root beside its own certificate");
const encode = (text) => new TextEncoder().encode(text);
const keys = file.trustedKeys[vector.trustedKeys];
const judge = async (trust) => verify(encode(vector.receipt), trust, { ...vector, now: new Date(vector.now) });
const [stamp] = JSON.parse(vector.receipt).timestamps;
const [{ authority, token }] = stamp.tokens;
const der = new Uint8Array(Buffer.from(token, "base64"));
const imprint = new Uint8Array(await crypto.subtle.digest("SHA-256", encode(stamp.checkpoint)));
const pinned = JSON.parse(keys).timestampAuthorities.find(({ name }) => name === authority).certificates.map((text) => readCertificate(new Uint8Array(Buffer.from(text, "base64"))));

test("every byte of a token counts", async () => {
  const { genTime, latest } = await checkToken(der, imprint, pinned);
  assert.ok(genTime <= latest);
  const root = Buffer.from(pinned[0].whole); // a pinned certificate is not taken from the token
  const needless = Buffer.from(der).indexOf(root);
  for (let i = 0; i < der.length; i++) {
    if (needless >= 0 && i >= needless && i < needless + root.length) {
      continue;
    }
    for (const bit of [0x01, 0x80]) {
      const changed = der.slice();
      changed[i] ^= bit;
      await assert.rejects(checkToken(changed, imprint, pinned), Refusal, `byte ${i}`);
    }
  }
  for (const changed of [der.slice(0, -1), Uint8Array.of(...der, 0), new Uint8Array(), new Uint8Array(9000)]) {
    await assert.rejects(checkToken(changed, imprint, pinned), Refusal);
  }
  await assert.rejects(checkToken(der, imprint.map((byte, i) => (i === 31 ? byte ^ 1 : byte)), pinned), Refusal);
});

test("where a kind of signature is missing nothing is valid", async () => {
  const subtle = Object.getPrototypeOf(crypto.subtle);
  const { importKey } = subtle;
  subtle.importKey = function (form, ...rest) {
    return form === "spki" ? Promise.reject(new DOMException("", "NotSupportedError")) : importKey.call(this, form, ...rest);
  };
  try {
    const findings = await judge(await parseTrustedKeys(encode(keys)));
    assert.deepEqual([findings.time, findings.existedBefore, findings.notes.some(({ code }) => code === "time-cannot-check")], ["not-checked", null, true]);
  } finally {
    subtle.importKey = importKey;
  }
});

test("where what reads tokens cannot be loaded nothing is valid, and what is required fails", async () => {
  await mkdir("without");
  for (const name of (await readdir(".")).filter((name) => /^[a-z0-9]+\.js(on)?$/.test(name) && name !== "asn1.js")) {
    await copyFile(name, `without/${name}`);
  }
  const { parseTrustedKeys, verify } = await import("./without/verifier.js");
  const trust = await parseTrustedKeys(encode(keys));
  const findings = await verify(encode(vector.receipt), trust, { now: new Date(vector.now), requireTimestamp: true });
  assert.deepEqual([findings.signature, findings.inclusion, findings.time, findings.reasons], ["valid", "valid", "not-checked", [{ part: "time", code: "tokens-unchecked", detail: "" }]]);
  assert.ok(findings.notes.some(({ code }) => code === "time-cannot-check"));
});

test("a witness counts once, whatever the number of its keys", async () => {
  const origin = "witness.example/w";
  const pairs = await Promise.all([0, 1].map(() => crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])));
  const receipt = JSON.parse(vector.receipt);
  const note = receipt.inclusion.checkpoint;
  const signed = note.slice(0, note.indexOf("\n\n") + 1);
  const time = BigInt(Math.floor(new Date(vector.now).getTime() / 1000));
  const trusted = JSON.parse(keys);
  trusted.witnessKeys = [];
  for (const { publicKey, privateKey } of pairs) {
    const typed = Uint8Array.of(4, ...new Uint8Array(await crypto.subtle.exportKey("raw", publicKey)));
    const hash = Buffer.from(await crypto.subtle.digest("SHA-256", Uint8Array.of(...encode(`${origin}\n`), ...typed))).subarray(0, 4);
    trusted.witnessKeys.push({ name: origin, keyHash: hash.toString("hex"), verifierKey: `${origin}+${hash.toString("hex")}+${Buffer.from(typed).toString("base64")}` });
    const signature = await crypto.subtle.sign({ name: "Ed25519" }, privateKey, encode(`cosignature/v1\ntime ${time}\n${signed}`));
    const at = Buffer.alloc(8);
    at.writeBigUInt64BE(time);
    receipt.inclusion.checkpoint += `— ${origin} ${Buffer.concat([hash, at, Buffer.from(signature)]).toString("base64")}\n`;
  }
  const trust = await parseTrustedKeys(encode(JSON.stringify(trusted)));
  const findings = await verify(encode(JSON.stringify(receipt)), trust, { now: new Date(vector.now) });
  assert.deepEqual([findings.inclusion, findings.witnessed], ["valid", 1]);
});
