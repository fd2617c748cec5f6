// The installed client against a running service. SETUP is what the service was
// prepared with: {baseUrl, owner, worker, workerId, certificate: {publicId, text}, webhookId}.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, IntegrityError, finalBytesDeclaration, sha256 } from "integrity-client";

const setup = JSON.parse(process.env.SETUP);
const owner = new Client({ baseUrl: setup.baseUrl, apiKey: setup.owner });
const worker = new Client({ baseUrl: `${setup.baseUrl}/`, apiKey: setup.worker });
const anyone = new Client({ baseUrl: new URL(setup.baseUrl) });
const bytes = (text) => new TextEncoder().encode(text);
const identity = { companyReference: "c-js", source: "erp", documentReference: "d-1", version: 1 };
const declare = (text, change = {}) =>
  finalBytesDeclaration({ ...identity, mimeType: "application/pdf", generatedAt: "2026-11-20T10:00:00Z", bytes: bytes(text), ...change });
const refuses = (promise, code, status) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof IntegrityError, String(error));
    assert.deepEqual([error.code, error.status], [code, status], error.message);
    assert.match(error.requestId, /^[A-Za-z0-9._-]{1,64}$/);
    return true;
  });

test("an origin system, from the first company to the revocation", async () => {
  const company = await owner.createCompany({ reference: "c-js" });
  assert.equal(company.replayed, false);
  assert.equal((await owner.createCompany({ reference: "c-js" })).replayed, true);
  await refuses(worker.reserve(identity), "COMPANY_NOT_AUTHORIZED", 403);
  assert.equal((await owner.grantKey({ companyId: company.id, keyId: setup.workerId })).enabled, true);
  assert.equal((await owner.grantWebhook({ companyId: company.id, webhookId: setup.webhookId })).enabled, true);
  assert.equal((await owner.grantWebhook({ companyId: company.id, webhookId: setup.webhookId, enabled: false })).enabled, false);
  assert.deepEqual((await worker.companiesPage()).companies.map((c) => c.reference), ["c-js"]);
  const references = [];
  for await (const page of owner.companies({ all: true, limit: 1 })) {
    assert.equal(page.companies.length, 1);
    references.push(page.companies[0].reference);
  }
  assert.ok(references.length > 1 && references.includes("c-js"));

  const reserved = await worker.reserve(identity);
  assert.deepEqual([reserved.status, reserved.consumption.applied], ["pending", 0]);
  assert.equal((await anyone.compare({ publicId: reserved.publicId })).result, "REGISTRATION_PENDING");
  await refuses(worker.lookup(identity), "RECORD_NOT_FOUND", 404);

  const declaration = await declare("one", { reservationId: reserved.publicId });
  const record = await worker.register(declaration);
  assert.deepEqual(
    [record.publicId, record.sha256, record.sizeBytes, record.replayed, record.consumption.applied, record.status],
    [reserved.publicId, await sha256(bytes("one")), 3, false, 1, "current"],
  );
  const replay = await worker.register(declaration);
  assert.deepEqual([replay.replayed, replay.consumption.applied], [true, 0]);
  await assert.rejects(worker.register(await declare("other")), (error) => {
    assert.deepEqual([error.code, error.status, error.retryable, error.outcomeUnknown], ["VERSION_CONFLICT", 409, false, false]);
    assert.deepEqual(error.fields.map((field) => field.pointer), ["/sha256", "/sizeBytes"]);
    assert.equal(error.existing.publicId, record.publicId);
    return true;
  });
  await assert.rejects(worker.register({ ...declaration, version: 0, mimeType: "pdf" }), (error) => {
    assert.deepEqual([error.code, error.fields.map((field) => field.pointer).sort()], ["INVALID_DATA", ["/mimeType", "/version"]]);
    return true;
  });

  assert.deepEqual(await worker.lookup(identity), await worker.record({ publicId: record.publicId }));
  assert.equal((await worker.recordsPage({ sha256: record.sha256 })).records[0].publicId, record.publicId);
  const { results } = await worker.registerBatch({
    declarations: [await declare("two", { version: 2, previousVersion: 1 }), await declare("bad", { version: -1 })],
  });
  assert.deepEqual(results.map((r) => [r.status, r.data?.version ?? r.error.code]), [[201, 2], [422, "INVALID_DATA"]]);

  const versions = { companyReference: "c-js", source: "erp", documentReference: "d-1", limit: 1 };
  const listed = [];
  for await (const page of worker.records({ ...versions, receivedFrom: record.receivedAt })) listed.push(...page.records.map((r) => r.version));
  assert.deepEqual(listed, [2, 1]);
  assert.deepEqual((await worker.recordsPage({ companyReference: "c-js", status: "current" })).records.map((r) => r.version), [2]);
  const unused = await worker.reserve({ ...identity, documentReference: "d-2" });
  const pending = [];
  for await (const page of worker.reservations({ companyReference: "c-js", status: "pending" })) pending.push(...page.reservations);
  assert.deepEqual(pending.map((r) => [r.publicId, r.documentReference]), [[unused.publicId, "d-2"]]);
  const released = await worker.releaseReservation({ publicId: unused.publicId });
  assert.deepEqual([released.status, released.replayed], ["released", false]);
  assert.equal((await worker.releaseReservation({ publicId: unused.publicId })).replayed, true);

  const evidence = await worker.evidence({ publicId: record.publicId });
  assert.deepEqual([evidence.contract, evidence.references.documentReference], ["integrity-evidence-v1", "d-1"]);
  assert.equal(JSON.parse(evidence.statusObservation.payload).status, "superseded");
  assert.equal((await anyone.receipt({ publicId: record.publicId })).payload, evidence.payload);
  for (const report of [worker.report({ publicId: record.publicId, language: "es" }), anyone.publicReport({ publicId: record.publicId })]) {
    assert.equal(new TextDecoder().decode((await report).subarray(0, 5)), "%PDF-");
  }
  for (const proof of [() => worker.tlogProof({ publicId: record.publicId }), () => anyone.publicTlogProof({ publicId: record.publicId })]) {
    assert.match(await proof().catch((error) => error.code), /^(c2sp\.org\/tlog-proof@v1\n|INCLUSION_PENDING$)/);
  }
  const { results: exported } = await worker.evidenceOfMany({ publicIds: [record.publicId, "a".repeat(26)], wait: 1 });
  assert.deepEqual(exported.map((one) => one.error?.code ?? one.status).slice(1), ["RECORD_NOT_FOUND"]);
  assert.ok(exported[0].error?.code === "INCLUSION_PENDING" || exported[0].data.payload === evidence.payload, JSON.stringify(exported[0]));
  await refuses(worker.evidenceOfMany({ publicIds: [record.publicId, record.publicId] }), "INVALID_DATA", 422);
  assert.equal((await worker.usage()).companies[0].used, 2);
  const { sequence } = JSON.parse(evidence.statusObservation.payload);
  assert.equal((await worker.evidence({ publicId: record.publicId, timestamps: true })).timestamps, undefined); // no authority is asked
  await refuses(worker.evidence({ publicId: record.publicId, timestamps: "yes" }), "INVALID_DATA", 422);
  const then = await worker.evidence({ publicId: record.publicId, at: sequence });
  assert.deepEqual([then.statusObservation, JSON.parse(then.statusAsOf.payload).asOfSequence], [undefined, sequence]);
  await refuses(worker.evidence({ publicId: record.publicId, at: "2020-01-01T00:00:00Z" }), "INVALID_DATA", 422);
  const units = [];
  for await (const page of worker.usageEntries({ limit: 1 })) {
    assert.deepEqual(page.organization, { used: 2, visible: 2, notVisible: 0 });
    units.push(...page.entries.map((entry) => entry.version));
  }
  assert.deepEqual(units, [1, 2]);

  assert.equal((await worker.lookup({ publicId: record.publicId })).id, record.id);
  const closed = await owner.setCompanyStatus({ companyId: company.id, status: "closed" });
  assert.deepEqual([closed.id, closed.status], [company.id, "closed"]);
  assert.deepEqual((await worker.companiesPage({ status: "closed" })).companies.map((c) => c.reference), ["c-js"]);
  await refuses(worker.register(await declare("late", { version: 9 })), "COMPANY_CLOSED", 403);
  assert.equal((await owner.setCompanyStatus({ companyId: company.id, status: "active" })).closedAt, null);
  const granted = [];
  for await (const page of owner.companyAccess({ companyId: company.id, limit: 1 })) granted.push(...page.access);
  assert.deepEqual(granted.map((access) => [access.keyId, access.enabled]), [[setup.workerId, true]]);
  for await (const page of owner.companyWebhooks({ companyId: company.id })) {
    assert.deepEqual(page.webhooks.map((access) => [access.webhookId, access.enabled]), [[setup.webhookId, false]]);
  }

  await refuses(worker.revoke({ publicId: record.publicId }), "MISSING_SCOPE", 403);
  await owner.grantKey({ companyId: company.id, keyId: setup.ownerId });
  const revoked = await owner.revoke({ publicId: record.publicId, reason: "withdrawn" });
  assert.deepEqual([revoked.status, revoked.replayed], ["revoked", false]);
});

test("everyone compares, without a key", async () => {
  const two = await worker.lookup({ ...identity, version: 2 });
  const compared = async (text, publicId = two.publicId) => (await anyone.compareBytes({ publicId, bytes: bytes(text) })).result;
  assert.equal(await compared("two"), "MATCH_CURRENT");
  assert.equal(await compared("another"), "HASH_MISMATCH");
  assert.equal(await compared("one", (await worker.lookup(identity)).publicId), "RECORD_REVOKED");
  assert.equal((await anyone.compare({ publicId: two.publicId })).result, "FILE_NOT_COMPARED");
  await refuses(anyone.compare({ publicId: "a".repeat(26) }), "RECORD_NOT_FOUND", 404);
  await assert.rejects(anyone.usage(), TypeError);
});

test("changes come page after page, with the cursor to store", async () => {
  const seen = [];
  let cursor = 0, epoch;
  for await (const page of worker.changes({ companyReference: "c-js", limit: 2 })) {
    assert.ok(page.events.length <= 2 && Number.isInteger(page.epoch));
    ({ epoch } = page);
    seen.push(...page.events.map((event) => `${event.version} ${event.type}`));
    for (const { sha256, publicId } of page.events) assert.equal(sha256, (await worker.record({ publicId })).sha256);
    cursor = page.nextCursor;
  }
  assert.deepEqual(seen, [
    "1 integrity.registered", "2 integrity.registered", "1 integrity.superseded", "1 integrity.revoked",
  ]);
  await refuses(worker.changes({ companyReference: "c-js", after: cursor, epoch: epoch + 1 }).next(), "CURSOR_AHEAD", 422);
  const pages = worker.changes({ companyReference: "c-js", after: cursor, epoch, follow: true });
  assert.deepEqual((await pages.next()).value.events, []);
  const waiting = pages.next();
  await worker.register(await declare("three", { version: 3 }));
  const { value } = await waiting;
  assert.equal(value.events[0].version, 3);
  await pages.return();

  const stop = new AbortController();
  const aborted = worker.changes({ companyReference: "c-js", after: value.nextCursor, follow: true }, { signal: stop.signal });
  await aborted.next();
  const next = aborted.next();
  stop.abort();
  await assert.rejects(next, { code: "ABORTED" });
  await assert.rejects(worker.changesPage({ companyReference: "c-js", after: 1e9 }), { code: "CURSOR_AHEAD", status: 422 });
});

test("one cursor reads the changes of all companies", async () => {
  const held = new Set();
  const read = async (cursor) => {
    for await (const page of worker.changes({ after: cursor, limit: 2 })) {
      assert.ok(page.nextCursor >= cursor);
      for (const { id } of page.events) held.add(id);
      cursor = page.nextCursor;
    }
    return cursor;
  };
  const lacks = async (companyReference) => {
    let n = 0;
    for await (const page of worker.changes({ companyReference })) n += page.events.filter(({ id }) => !held.has(id)).length;
    return n;
  };
  const { id } = await owner.createCompany({ reference: "c-js-late" });
  const grant = (enabled) => owner.grantKey({ companyId: id, keyId: setup.workerId, enabled });
  await grant(true);
  for (const version of [1, 2, 3]) await worker.register(await declare(`late ${version}`, { companyReference: "c-js-late", version }));
  await grant(false);
  const cursor = await read(0);
  assert.equal(await lacks("c-js"), 0);
  await grant(true);
  assert.equal(await lacks("c-js-late"), 5);
  const page = await worker.changesPage({ after: cursor });
  assert.deepEqual(page.grantedCompanies.map((c) => c.companyReference), ["c-js-late"]);
  assert.equal(await read(cursor), page.head);
  assert.equal(await lacks("c-js-late"), 0);
});

test("a webhook destination, from its secret to its end", async () => {
  const made = await owner.createWebhook({ url: "https://receiver.example/js", types: ["integrity.revoked"] });
  assert.match(made.secret, /^whsec_/);
  const { id: companyId } = await owner.createCompany({ reference: "c-js" });
  await owner.grantWebhook({ companyId, webhookId: made.id });
  assert.ok((await owner.webhooks()).webhooks.some((w) => w.id === made.id && !("secret" in w)));
  const test = await owner.testWebhook({ webhookId: made.id });
  assert.deepEqual([test.type, test.webhookId], ["webhook.test", made.id]);
  const replay = { webhookId: made.id, fromSequence: 1, companyReference: "c-js" };
  assert.deepEqual(await owner.replayWebhook({ ...replay, dryRun: true }), { dryRun: true, count: 1, nextSequence: null });
  assert.equal((await owner.replayWebhook({ ...replay, dryRun: false })).count, 1);
  const deliveries = [];
  for await (const page of owner.deliveries({ webhookId: made.id, limit: 1 })) deliveries.push(...page.deliveries);
  assert.deepEqual(deliveries.map((d) => d.type).sort(), ["integrity.revoked", "webhook.test"]);
  assert.equal((await owner.redeliver({ deliveryId: test.id })).id, test.id);
  assert.notEqual((await owner.rotateWebhookSecret({ webhookId: made.id, overlapSeconds: 0 })).secret, made.secret);
  assert.equal((await owner.updateWebhook({ webhookId: made.id, enabled: false, description: "off" })).status, "disabled");
  assert.equal((await owner.webhook({ webhookId: made.id })).description, "off");
  assert.equal((await owner.deleteWebhook({ webhookId: made.id })).deleted, true);
  await refuses(owner.webhook({ webhookId: made.id }), "NOT_FOUND", 404);
});

test("an organization administers its keys and members", async () => {
  const organization = await worker.organization();
  assert.ok(organization.limits.versions.used >= 3 && organization.id.startsWith("org_"));
  await refuses(worker.apiKeysPage(), "MISSING_SCOPE", 403);
  const made = await owner.createApiKey({ name: "from JavaScript", scopes: ["integrity:read"], companies: ["c-js"], networks: ["127.0.0.0/8"] });
  assert.deepEqual([made.name, made.grants.companies, made.lastUsedAt], ["from JavaScript", ["c-js"], null]);
  assert.deepEqual((await new Client({ baseUrl: setup.baseUrl, apiKey: made.key }).companiesPage()).companies.map((c) => c.reference), ["c-js"]);
  assert.equal((await owner.updateApiKey({ keyId: made.id, name: "renamed" })).name, "renamed");
  const rotated = await owner.rotateApiKey({ keyId: made.id, overlapSeconds: 0, copyGrants: true });
  assert.deepEqual([rotated.formerKey.id, rotated.formerKey.revokedAt !== null, rotated.grants.companies], [made.id, true, ["c-js"]]);
  assert.ok((await owner.revokeApiKey({ keyId: rotated.id })).revokedAt);
  const { revokedAt, key } = { ...(await owner.apiKey({ keyId: rotated.id })) };
  assert.deepEqual([typeof revokedAt, key], ["string", undefined]);
  const listed = [];
  for await (const page of owner.apiKeys({ limit: 2 })) listed.push(...page.keys.map((k) => k.id));
  assert.ok(listed.includes(made.id) && listed.includes(rotated.id) && new Set(listed).size === listed.length);

  const invited = await owner.inviteMember({ email: "javascript@example.org", role: "viewer" });
  assert.deepEqual([invited.status, invited.mailed, invited.renewed], ["invited", false, false]);
  assert.match(invited.invitationUrls.en, /\/en\/console\/invitation\//);
  assert.equal((await owner.updateMember({ memberId: invited.id, role: "analyst" })).role, "analyst");
  assert.equal((await owner.endMember({ memberId: invited.id })).status, "ended");
  const members = [];
  for await (const page of owner.members({ limit: 1 })) members.push(...page.members.map((m) => m.status));
  assert.ok(members.includes("ended") && members.includes("active"));
});

test("a certificate's file is accepted only where verified is true", async () => {
  const { publicId, text } = setup.certificate;
  const result = await owner.verifyBytes({ publicId, bytes: bytes(text) });
  assert.deepEqual([result.verified, result.reason, result.documentUploaded], [true, "MATCH", false]);
  const other = await owner.verifyBytes({ publicId, bytes: bytes(`${text} `).buffer });
  assert.deepEqual([other.verified, other.hashMatches, other.reason], [false, false, "HASH_MISMATCH"]);
  assert.equal((await owner.verifyHash({ publicId, sha256: await sha256(bytes(text)) })).verified, true);
  await refuses(owner.verifyBytes({ publicId: "a".repeat(26), bytes: bytes("") }), "CERTIFICATE_NOT_FOUND", 404);
});

test("a wrong key is one answer, and is never shown", async () => {
  const secret = `${setup.worker.slice(0, -1)}${setup.worker.endsWith("a") ? "b" : "a"}`;
  const client = new Client({ baseUrl: setup.baseUrl, apiKey: secret });
  await refuses(client.usage(), "INVALID_KEY", 401);
  const { inspect } = await import("node:util");
  const error = await client.usage().catch((e) => e);
  assert.ok(!inspect(client, { showHidden: true, depth: 9 }).includes(secret) && !JSON.stringify(client).includes(secret));
  assert.ok(!inspect(error, { showHidden: true, depth: 9 }).includes(secret));
});
