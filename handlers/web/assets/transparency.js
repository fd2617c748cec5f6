// The transparency log as verifiers know it: verifier keys and checkpoints (C2SP
// signed-note and tlog-checkpoint), cosignatures (C2SP tlog-cosignature) and audit
// paths (RFC 9162, section 2.1.3.2).

import { decodeBase64, encoder, hex, sha256 } from "./bytes.js";
import { verifies } from "./ed25519.js";
import { Refusal } from "./strictjson.js";

export const logName = /^[!-*,-~]{1,512}$/;

const withHost = /^(?:[A-Za-z][A-Za-z0-9+.-]*:)?\/\//;
const plainURL = /^[A-Za-z][A-Za-z0-9+.-]*:\/\/([A-Za-z0-9.-]+(?::[0-9]+)?)((?:\/[A-Za-z0-9._~-]*)*)$/;

export const isURL = (text) => withHost.test(text);

// logNameOf answers the name of the log of an issuer: without the scheme, and followed by /log. It is null for a URL with
// more than a host name, a port and a plain path, because libraries read such URLs differently.
export function logNameOf(issuer) {
  const url = plainURL.exec(issuer);
  if (url === null && isURL(issuer)) {
    return null;
  }
  const name = (url === null ? issuer : url[1].toLowerCase() + url[2]).replace(/\/+$/, "");
  const letters = [...encoder.encode(name)].map((byte) =>
    byte > 0x20 && byte < 0x7f && byte !== 0x2b ? String.fromCharCode(byte) : `%${hex([byte]).toUpperCase()}`);
  return `${letters.join("")}/log`;
}

// readVerifierKey reads <name>+<key hash>+<base64 of the type and the key>. The type is 1
// for a log and 4 for a witness. It answers null for any other text.
export async function readVerifierKey(text, type) {
  const [name, keyHash, ...rest] = text.split("+");
  const typed = decodeBase64(rest.join("+"));
  if (!logName.test(name) || typed === null || typed.length !== 33 || typed[0] !== type) {
    return null;
  }
  const hash = hex((await sha256(Uint8Array.of(...encoder.encode(`${name}\n`), ...typed))).slice(0, 4));
  return hash === keyHash ? { name, keyHash, raw: typed.slice(1) } : null;
}

// Unicode's White_Space, which signed-note keeps out of names, spelled out.
const signatureLine = /^— ([^+ \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+) ([A-Za-z0-9+/]+=*)$/u;

// readCheckpoint takes a checkpoint without extension lines apart. signed is the
// text under the signatures, each of which is the name and key hash that it claims
// and the bytes after them.
export function readCheckpoint(note) {
  const lines = note.split("\n");
  const last = lines.length - 1;
  const root = decodeBase64(lines[2] ?? "");
  if (
    /[\u0000-\u0009\u000b-\u001f]/.test(note) || last < 5 || last > 104 || lines[0] === "" || lines[3] !== "" || lines[last] !== "" ||
    !/^(?:0|[1-9][0-9]{0,15})$/.test(lines[1]) || !Number.isSafeInteger(Number(lines[1])) || root?.length !== 32
  ) {
    throw new Refusal("checkpoint-form");
  }
  const signatures = lines.slice(4, last).map((line) => {
    const found = signatureLine.exec(line);
    const bytes = found && decodeBase64(found[2]);
    if (bytes === null || bytes.length < 5) {
      throw new Refusal("checkpoint-form");
    }
    return { name: found[1], keyHash: hex(bytes.slice(0, 4)), signature: bytes.slice(4) };
  });
  return { origin: lines[0], size: Number(lines[1]), root, signed: `${lines.slice(0, 3).join("\n")}\n`, signatures };
}

const half = (n) => Math.floor(n / 2); // of integers beyond 32 bits, too

// rootOf is the root that the path leads to from the leaf at index of a tree, or null
// where the tree has another number of levels there.
export async function rootOf(leaf, index, size, path) {
  let [node, last] = [index, size - 1];
  let result = await sha256(Uint8Array.of(0, ...leaf));
  for (const sibling of path) {
    if (last === 0) {
      return null;
    }
    if (node % 2 === 1 || node === last) {
      result = await sha256(Uint8Array.of(1, ...sibling, ...result));
      while (node % 2 === 0 && node !== 0) {
        [node, last] = [half(node), half(last)];
      }
    } else {
      result = await sha256(Uint8Array.of(1, ...result, ...sibling));
    }
    [node, last] = [half(node), half(last)];
  }
  return last === 0 ? result : null;
}

export const cosignature = 72; // bytes of time and Ed25519

// cosignedAt is the time of a witness's cosignature, in microseconds since 1970, or null
// where it does not hold. It is the witness's own word, no trusted timestamp.
export async function cosignedAt(key, signature, signed) {
  if (signature.length !== cosignature) {
    return null;
  }
  const time = BigInt(`0x${hex(signature.slice(0, 8))}`);
  const message = encoder.encode(`cosignature/v1\ntime ${time}\n${signed}`);
  return time > 0n && (await verifies(key.raw, signature.slice(8), message)) ? time * 1_000_000n : null;
}
