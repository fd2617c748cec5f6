// Ed25519 with WebCrypto, as strictly as RFC 8032 has it.

import { decodeBase64URL, hex } from "./bytes.js";

const order = 0x1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3edn; // L of RFC 8032, section 5.1

/** Reports whether a signature of 64 bytes was made over a message with a raw key. */
export async function verifies(raw, signature, message) {
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
