// Bytes and the texts that stand for them, each in one spelling.

export const encoder = new TextEncoder();
export const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
export const hexSHA256 = async (text) => hex(await sha256(encoder.encode(text)));

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

export function encodeBase64URL(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const group = (bytes[i] << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
    const characters = Math.min(bytes.length - i, 3) + 1;
    for (let j = 0; j < characters; j++) {
      text += alphabet[(group >> (18 - 6 * j)) & 63];
    }
  }
  return text;
}

// decodeBase64URL accepts the one spelling of exactly size bytes: no padding, no
// line break, no set bits after the last byte. It answers null for any other.
export function decodeBase64URL(text, size) {
  if (text.length !== Math.ceil((size * 4) / 3)) {
    return null;
  }
  const bytes = new Uint8Array(size);
  let bits = 0;
  let held = 0;
  let at = 0;
  for (const character of text) {
    const value = alphabet.indexOf(character);
    if (value < 0) {
      return null;
    }
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits >= 8 && at < size) {
      bits -= 8;
      bytes[at++] = held >> bits;
    }
  }
  return encodeBase64URL(bytes) === text ? bytes : null;
}

// decodeBase64 accepts the one spelling of at least one byte in standard base64
// with its padding. It answers null for any other.
export function decodeBase64(text) {
  const padding = /^[A-Za-z0-9+/]+(={0,2})$/.exec(text)?.[1];
  if (padding === undefined || text.length % 4 !== 0) {
    return null;
  }
  const plain = text.slice(0, text.length - padding.length).replaceAll("+", "-").replaceAll("/", "_");
  return decodeBase64URL(plain, (text.length / 4) * 3 - padding.length);
}
