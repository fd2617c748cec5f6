import { readFile } from "node:fs/promises";
import { Client, finalBytesDeclaration } from "integrity-client";

const { INTEGRITY_BASE_URL, INTEGRITY_API_KEY, INTEGRITY_COMPANY } = process.env;
const client = new Client({ baseUrl: INTEGRITY_BASE_URL, apiKey: INTEGRITY_API_KEY });
const bytes = await readFile("document.txt");
const declaration = await finalBytesDeclaration({
  companyReference: INTEGRITY_COMPANY, source: "quick-start",
  documentReference: "node", version: 1,
  mimeType: "text/plain", generatedAt: "2026-11-21T09:30:00Z", bytes,
});
// In an origin system, store it now, in the transaction that stores the file.
const record = await client.register(declaration);
console.log(record.verificationUrl);

const { publicId } = record;
const { result, verified } = await client.compareBytes({ publicId, bytes });
console.log(result, verified);
