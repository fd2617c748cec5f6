import { randomBytes } from "node:crypto";
import { client as certification } from "./hey-api/certification/client.gen";
import { getMe } from "./hey-api/certification";
import { client as integrity } from "./hey-api/integrity/client.gen";
import { comparePublicly, getRecord, registerRecord, type Declaration } from "./hey-api/integrity";
import { environment, report } from "./environment";

async function use(): Promise<void> {
  const { address, key, company } = environment();
  for (const client of [integrity, certification]) client.setConfig({ baseUrl: address, auth: key });
  const hash = randomBytes(32).toString("hex");
  const body: Declaration = {
    companyReference: company, source: "hey-api", documentReference: "d-1", version: 1, sha256: hash,
    sizeBytes: 5_000_000_000, mimeType: "text/plain", generatedAt: "2026-11-01T10:00:00Z",
  };
  const registered = await registerRecord({ body, throwOnError: true });
  const { publicId } = registered.data.data;
  const compared = await comparePublicly({ path: { publicId }, query: { sha256: hash }, throwOnError: true });
  if (!compared.data.data.verified) throw new Error("compare");
  const conflict = await registerRecord({ body: { ...body, sizeBytes: 1 } });
  if (conflict.error?.error.existing?.publicId !== publicId) throw new Error("conflict");
  const account = await getMe({ throwOnError: true });
  const read = await getRecord({ path: { publicId }, throwOnError: true });
  report(account.data.data, read.data.data);
}

void use();
