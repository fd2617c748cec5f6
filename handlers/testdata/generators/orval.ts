import { randomBytes } from "node:crypto";
import { getMe } from "./orval/certification";
import { comparePublicly, getRecord, registerRecord, type Declaration } from "./orval/integrity";
import { environment, report } from "./environment";

async function use(): Promise<void> {
  const { key, company } = environment();
  const authorized = { headers: { Authorization: `Bearer ${key}` } };
  const hash = randomBytes(32).toString("hex");
  const declaration: Declaration = {
    companyReference: company, source: "orval", documentReference: "d-1", version: 1, sha256: hash,
    sizeBytes: 5_000_000_000, mimeType: "text/plain", generatedAt: "2026-11-01T10:00:00Z",
  };
  const registered = await registerRecord(declaration, authorized);
  if (registered.status !== 201) throw new Error(`register: ${registered.status}`);
  const { publicId } = registered.data.data;
  const compared = await comparePublicly(publicId, { sha256: hash });
  if (compared.status !== 200 || !compared.data.data.verified) throw new Error("compare");
  const conflict = await registerRecord({ ...declaration, sizeBytes: 1 }, authorized);
  if (conflict.status !== 409 || conflict.data.error.existing?.publicId !== publicId) throw new Error("conflict");
  const account = await getMe(authorized);
  if (account.status !== 200) throw new Error(`me: ${account.status}`);
  const read = await getRecord(publicId, authorized);
  if (read.status !== 200) throw new Error(`read: ${read.status}`);
  report(account.data.data, read.data.data);
}

void use();
