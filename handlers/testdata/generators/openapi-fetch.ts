import { randomBytes } from "node:crypto";
import createClient from "openapi-fetch";
import type { paths as CertificationPaths } from "./openapi-typescript/certification";
import type { components, paths } from "./openapi-typescript/integrity";
import { environment, report } from "./environment";

type Declaration = components["schemas"]["Declaration"];

async function use(): Promise<void> {
  const { address, key, company } = environment();
  const settings = { baseUrl: address, headers: { Authorization: `Bearer ${key}` } };
  const client = createClient<paths>(settings);
  const hash = randomBytes(32).toString("hex");
  const declaration: Declaration = {
    companyReference: company, source: "openapi-fetch", documentReference: "d-1", version: 1, sha256: hash,
    sizeBytes: 5_000_000_000, mimeType: "text/plain", generatedAt: "2026-11-01T10:00:00Z",
  };
  const registered = await client.POST("/api/v1/integrity/records", { body: declaration });
  if (registered.error) throw new Error(registered.error.error.code);
  const { publicId } = registered.data.data;
  const compared = await client.GET("/api/public/integrity/{publicId}", { params: { path: { publicId }, query: { sha256: hash } } });
  if (!compared.data?.data.verified) throw new Error("compare");
  const conflict = await client.POST("/api/v1/integrity/records", { body: { ...declaration, sizeBytes: 1 } });
  if (conflict.error?.error.existing?.publicId !== publicId) throw new Error("conflict");
  const account = await createClient<CertificationPaths>(settings).GET("/api/v1/me");
  if (account.error) throw new Error(account.error.error.code);
  const read = await client.GET("/api/v1/integrity/records/{publicId}", { params: { path: { publicId } } });
  report(account.data.data, read.data?.data);
}

void use();
