import { readFileSync } from "node:fs";
import { signed } from "./signature.mjs";

const { vectors } = JSON.parse(readFileSync("webhook-vectors.json", "utf8"));
for (const { name, valid, secret, now, headers, body } of vectors) {
  const found = signed(headers["Service-Signature"], Buffer.from(body), secret, now);
  console.log(found === valid ? "as it must be:" : "WRONG:", name);
  if (found !== valid) process.exitCode = 1;
}
