import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";

const { INTEGRITY_BASE_URL, INTEGRITY_API_KEY, INTEGRITY_COMPANY } = process.env;
const document = Buffer.from("The final bytes of a document.\n");
const declaration = JSON.stringify({
  companyReference: INTEGRITY_COMPANY, source: "quick-start",
  documentReference: `document-${Date.now()}-${process.pid}`, version: 1,
  sha256: createHash("sha256").update(document).digest("hex"),
  sizeBytes: document.length,
  mimeType: "text/plain", generatedAt: new Date().toISOString(),
});
writeFileSync("document.txt", document);
writeFileSync("declaration.json", declaration);
const response = await fetch(`${INTEGRITY_BASE_URL}/api/v1/integrity/records`, {
  method: "POST", body: declaration, signal: AbortSignal.timeout(60_000),
  headers: {
    authorization: `Bearer ${INTEGRITY_API_KEY}`, "content-type": "application/json",
  },
});
const record = await response.text();
if (!response.ok) throw new Error(record);
writeFileSync("record.json", record);
console.log(record);
