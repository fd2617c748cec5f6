import { readFile } from "node:fs/promises";
import { Client, finalBytesDeclaration } from "integrity-client";

const { INTEGRITY_BASE_URL: baseUrl, INTEGRITY_API_KEY: apiKey, INTEGRITY_COMPANY: companyReference } = process.env;
const client = new Client({ baseUrl, apiKey });
const bytes = await readFile("document.txt");
const declaration = await finalBytesDeclaration({
  companyReference, source: "quick-start", documentReference: "node", version: 1,
  mimeType: "text/plain", generatedAt: "2026-11-21T09:30:00Z", bytes,
});
// In an origin system, store it now, in the transaction that stores the file.
const record = await client.register(declaration);
console.log(record.verificationUrl);

const { result, verified } = await client.compareBytes({ publicId: record.publicId, bytes });
console.log(result, verified);
