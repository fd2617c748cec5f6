// What a strict TypeScript project writes against the installed client. It is checked, never run.
import { Client, IntegrityError, finalBytesDeclaration, sha256 } from "integrity-client";
import type { ChangesPage, Comparison, Declaration, Evidence, Registration, Verification } from "integrity-client";

export async function use(pdf: Uint8Array, key: string): Promise<void> {
  const client = new Client({ baseUrl: "https://ledger.example", apiKey: key });
  const declaration: Declaration = await finalBytesDeclaration({
    companyReference: "c", source: "erp", documentReference: "d", version: 1, mimeType: "application/pdf", generatedAt: "2026-11-20T10:00:00Z", bytes: pdf,
  });
  const record: Registration = await client.register(declaration, { timeout: 1000 });
  const compared: Comparison = await client.compareBytes({ publicId: record.publicId, bytes: pdf.buffer as ArrayBuffer });
  const state: "current" | "superseded" | "revoked" | "pending" | null = compared.checks.versionState;
  const verified: Verification = await client.verifyBytes({ publicId: record.publicId, bytes: pdf });
  const evidence: Evidence = await client.evidence({ publicId: record.publicId });
  const salt: string = evidence.references.salt;
  for await (const page of client.changes({ companyReference: "c", follow: true }, { signal: new AbortController().signal })) {
    const kept: ChangesPage = page;
    const sequence: number | undefined = kept.events[0]?.sequence;
    console.log(state, salt, sequence, verified.verified === true, await sha256(pdf));
  }
  try {
    await client.usage();
  } catch (error) {
    if (error instanceof IntegrityError && error.outcomeUnknown) {
      const wait: number | null = error.retryAfter;
      console.log(wait, error.fields.map((field) => field.pointer));
    }
  }
  // @ts-expect-error a declaration needs its hash
  await client.register({ companyReference: "c", source: "erp", documentReference: "d", version: 1 });
  // @ts-expect-error the state is no boolean
  const wrong: boolean = compared.result;
  // @ts-expect-error there is no such method
  await client.approve();
  console.log(wrong);
}
