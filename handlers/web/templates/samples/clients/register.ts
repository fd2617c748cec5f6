import { readFile } from "node:fs/promises";
import { Client, finalBytesDeclaration } from "integrity-client";

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const client = new Client({
  baseUrl: variable("INTEGRITY_BASE_URL"), apiKey: variable("INTEGRITY_API_KEY"),
});
const bytes = await readFile("document.txt");
const record = await client.register(await finalBytesDeclaration({
  companyReference: variable("INTEGRITY_COMPANY"), source: "quick-start",
  documentReference: "typescript", version: 1,
  mimeType: "text/plain", generatedAt: "2026-11-21T09:30:00Z", bytes,
}));
const { result, verified } = await client.compareBytes({ publicId: record.publicId, bytes });
console.log(record.verificationUrl, result, verified);
