import { createHmac, timingSafeEqual } from "node:crypto";

// Whether the raw body (a Buffer) was signed with the secret,
// within 300 seconds of now.
export function signed(header, body, secret, now = Date.now() / 1000) {
  const parts = header.split(",").map((part) => part.split("="));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value);
  if (times.length !== 1 || !/^[0-9]{1,12}$/.test(times[0])) return false;
  if (Math.abs(now - Number(times[0])) > 300) return false;
  const expected = createHmac("sha256", secret)
    .update(times[0] + ".").update(body).digest();
  return parts
    .filter(([name, value]) => name === "v1" && /^[0-9a-f]{64}$/.test(value ?? ""))
    .some(([, value]) => timingSafeEqual(expected, Buffer.from(value, "hex")));
}

export function verify(headers, body, secret) {
  if (!signed(headers["service-signature"] ?? "", body, secret)) {
    throw new Error("no valid signature");
  }
  return JSON.parse(body);
}
