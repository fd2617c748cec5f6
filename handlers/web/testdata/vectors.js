// Answers what a verifier finds in each vector of schemas/verification-vectors.json:
// {name, exitCode, findings} as the file expects them. The same text runs in Node.js
// and in a browser.
export async function run({ Refusal, parseTrustedKeys, supported, verify }, file) {
  if (!(await supported())) {
    throw new Error("there is no Ed25519 here");
  }
  const encoder = new TextEncoder();
  const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const hash = async (content) =>
    Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", content)), (b) => b.toString(16).padStart(2, "0")).join("");
  const names = ["signature", "references", "observation", "observedStatus", "observedAt", "fileMatch", "inclusion", "statusAsOf", "asOfStatus", "asOf", "asOfSequence", "time", "existedBefore", "timeAuthority", "witnessed"];
  const answers = [];
  for (const vector of file.vectors) {
    let trust;
    try {
      trust = await parseTrustedKeys(encoder.encode(file.trustedKeys[vector.trustedKeys]));
    } catch (error) {
      if (!(error instanceof Refusal)) {
        throw error;
      }
      answers.push({ name: vector.name, exitCode: 2, findings: null });
      continue;
    }
    const content = vector.documentBase64 === null ? null : bytes(vector.documentBase64);
    const receipt = vector.receiptBase64 === null ? encoder.encode(vector.receipt) : bytes(vector.receiptBase64);
    const document = content && { sha256: await hash(content), size: content.length };
    const findings = await verify(receipt, trust, { ...vector, now: new Date(vector.now), document });
    answers.push({
      name: vector.name,
      exitCode: findings.reasons.length > 0 ? 1 : 0,
      findings: Object.fromEntries(names.map((name) => [name, findings[name]])),
    });
  }
  return answers;
}
