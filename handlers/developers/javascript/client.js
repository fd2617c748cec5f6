// Client of Integrity Ledger. See README.md; client.d.ts describes every member.
//
// One call is one request: nothing is retried, redirects are refused, and the key
// goes to the configured origin only, with requests that need it. No document is
// ever sent.

const product = "integrity-javascript/@VERSION@";
const maxAnswer = 16 * 1024 * 1024; // bytes
const tileWidth = 256; // hashes of a whole tile of the log
const defaultTimeout = 30_000; // milliseconds
const longPoll = 25; // seconds that the service holds an empty page open at most
const sessionLength = 10_000; // milliseconds after a write in which a replica may answer that has it
const followPause = 5_000; // milliseconds after an empty page that came at once

/** Why a call has no result. The service's own codes, or one of the client's. */
export class IntegrityError extends Error {
  constructor(code, message, details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "IntegrityError";
    this.code = code;
    this.status = details.status ?? null;
    this.retryable = details.retryable ?? false;
    this.retryAfter = details.retryAfter ?? null;
    this.requestId = details.requestId ?? null;
    this.fields = details.fields ?? [];
    this.existing = details.existing ?? null;
    this.outcomeUnknown = details.outcomeUnknown ?? false;
  }
}

/** The SHA-256 of bytes, computed here: 64 lower-case hexadecimal characters. */
export async function sha256(bytes) {
  if (!(bytes instanceof ArrayBuffer) && !ArrayBuffer.isView(bytes)) {
    throw new TypeError("bytes must be an ArrayBuffer, Uint8Array or Buffer");
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** A declaration of these final bytes. Nothing of them but hash and length is in it. */
export async function finalBytesDeclaration({ bytes, ...identity }) {
  const hash = await sha256(bytes);
  return { ...identity, sha256: hash, sizeBytes: bytes.byteLength };
}

function originOf(baseUrl) {
  let url;
  try {
    url = new URL(baseUrl);
  } catch {
    throw new TypeError("baseUrl must be an origin such as https://ledger.example");
  }
  if (url.pathname !== "/" || url.search || url.hash || url.username || url.password || /[?#]$/.test(String(baseUrl))) {
    throw new TypeError("baseUrl must be an origin such as https://ledger.example, without /api/v1, query or credentials");
  }
  const loopback = /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && loopback)) {
    throw new TypeError("baseUrl must be https; http is for loopback addresses only");
  }
  return url.origin;
}

// A page, or a worker of one.
const inBrowser = () => typeof globalThis.document !== "undefined" || typeof globalThis.importScripts === "function";

function checkKey(apiKey) {
  if (apiKey === undefined || apiKey === null) {
    return null;
  }
  if (inBrowser()) {
    throw new TypeError("apiKey: a key is for servers only; in a browser anyone can read it");
  }
  // The text is never quoted: it may be a key with a slip in it.
  if (typeof apiKey !== "string" || !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new TypeError("apiKey must be the key as it was shown, without spaces or line breaks");
  }
  return apiKey;
}

function checkTimeout(timeout) {
  if (!Number.isSafeInteger(timeout) || timeout < 1 || timeout > 600_000) {
    throw new TypeError("timeout must be 1 to 600000 milliseconds");
  }
  return timeout;
}

const segment = (name, value) => {
  if (typeof value !== "string" || !/^[A-Za-z0-9_-]{1,128}$/.test(value)) {
    throw new TypeError(`${name} must be an identifier of the service`);
  }
  return value;
};

export class Client {
  #origin;
  #apiKey;
  #timeout;
  // The highest sequence that this client has seen, and until when it is named.
  #seen = 0;
  #sessionEnd = -Infinity;

  constructor({ baseUrl, apiKey, timeout = defaultTimeout }) {
    if (typeof globalThis.crypto?.subtle?.digest !== "function" || typeof globalThis.AbortSignal?.any !== "function") {
      throw new IntegrityError("UNSUPPORTED_RUNTIME", "This client needs Node.js 20.3 or newer.");
    }
    this.#origin = originOf(baseUrl);
    this.#apiKey = checkKey(apiKey);
    this.#timeout = checkTimeout(timeout);
  }

  // ---- certificates of the certification API

  async verifyBytes({ publicId, bytes }, options) {
    return this.verifyHash({ publicId, sha256: await sha256(bytes) }, options);
  }

  async verifyHash({ publicId, sha256 }, options) {
    const result = await this.#call("POST", "/api/v1/verify", { body: { publicId, sha256 } }, options);
    if (result.publicId !== publicId || typeof result.verified !== "boolean") {
      throw new IntegrityError("UNREADABLE_ANSWER", "The answer is not about this certificate.", { status: 200 });
    }
    return result;
  }

  // ---- companies

  async createCompany({ reference }, options) {
    return this.#integrity("POST", "/companies", { body: { reference }, writes: true }, options);
  }

  async companiesPage({ all, status, limit, after } = {}, options) {
    return this.#integrity("GET", "/companies", { query: { all, status, limit, after } }, options);
  }

  companies({ all, status, limit } = {}, options) {
    return pages((after) => this.companiesPage({ all, status, limit, after }, options));
  }

  async setCompanyStatus({ companyId, status }, options) {
    return this.#integrity("PATCH", `/companies/${segment("companyId", companyId)}`, { body: { status }, writes: true }, options);
  }

  async companyAccessPage({ companyId, limit, after }, options) {
    return this.#integrity("GET", `/companies/${segment("companyId", companyId)}/access`, { query: { limit, after } }, options);
  }

  companyAccess({ companyId, limit }, options) {
    return pages((after) => this.companyAccessPage({ companyId, limit, after }, options));
  }

  async companyWebhooksPage({ companyId, limit, after }, options) {
    return this.#integrity("GET", `/companies/${segment("companyId", companyId)}/webhooks`, { query: { limit, after } }, options);
  }

  companyWebhooks({ companyId, limit }, options) {
    return pages((after) => this.companyWebhooksPage({ companyId, limit, after }, options));
  }

  async grantKey({ companyId, keyId, enabled = true }, options) {
    return this.#integrity("POST", `/companies/${segment("companyId", companyId)}/access`, { body: { keyId, enabled }, writes: true }, options);
  }

  async grantWebhook({ companyId, webhookId, enabled = true }, options) {
    const path = `/companies/${segment("companyId", companyId)}/webhooks`;
    return this.#integrity("POST", path, { body: { webhookId, enabled }, writes: true }, options);
  }

  // ---- webhook destinations

  async createWebhook({ url, description, types }, options) {
    return this.#integrity("POST", "/webhooks", { body: { url, description, types }, writes: true }, options);
  }

  async webhooks(options) {
    return this.#integrity("GET", "/webhooks", {}, options);
  }

  async webhook({ webhookId }, options) {
    return this.#integrity("GET", `/webhooks/${segment("webhookId", webhookId)}`, {}, options);
  }

  async updateWebhook({ webhookId, url, description, types, enabled }, options) {
    const body = { url, description, types, enabled };
    return this.#integrity("PATCH", `/webhooks/${segment("webhookId", webhookId)}`, { body, writes: true }, options);
  }

  async deleteWebhook({ webhookId }, options) {
    return this.#integrity("DELETE", `/webhooks/${segment("webhookId", webhookId)}`, { writes: true }, options);
  }

  async rotateWebhookSecret({ webhookId, overlapSeconds }, options) {
    const path = `/webhooks/${segment("webhookId", webhookId)}/secret/rotate`;
    return this.#integrity("POST", path, { body: { overlapSeconds }, writes: true }, options);
  }

  async testWebhook({ webhookId }, options) {
    return this.#integrity("POST", `/webhooks/${segment("webhookId", webhookId)}/test`, { body: {}, writes: true }, options);
  }

  async deliveriesPage({ webhookId, status, limit, after }, options) {
    return this.#integrity("GET", `/webhooks/${segment("webhookId", webhookId)}/deliveries`, { query: { status, limit, after } }, options);
  }

  deliveries({ webhookId, status, limit }, options) {
    return pages((after) => this.deliveriesPage({ webhookId, status, limit, after }, options));
  }

  async redeliver({ deliveryId }, options) {
    return this.#integrity("POST", `/webhooks/deliveries/${segment("deliveryId", deliveryId)}/redeliver`, { body: {}, writes: true }, options);
  }

  async replayWebhook({ webhookId, fromSequence, toSequence, companyReference, dryRun }, options) {
    const body = { fromSequence, toSequence, companyReference, dryRun };
    return this.#integrity("POST", `/webhooks/${segment("webhookId", webhookId)}/replay`, { body, writes: true }, options);
  }

  // ---- reservations and records

  async reserve({ companyReference, source, documentReference, version }, options) {
    return this.#integrity("POST", "/reservations", { body: { companyReference, source, documentReference, version }, writes: true }, options);
  }

  async reservationsPage({ companyReference, status, limit, after }, options) {
    return this.#integrity("GET", "/reservations", { query: { companyReference, status, limit, after } }, options);
  }

  reservations({ companyReference, status, limit }, options) {
    return pages((after) => this.reservationsPage({ companyReference, status, limit, after }, options));
  }

  async releaseReservation({ publicId }, options) {
    return this.#integrity("DELETE", `/reservations/${segment("publicId", publicId)}`, { writes: true }, options);
  }

  async register(declaration, options) {
    return this.#integrity("POST", "/records", { body: declaration, writes: true }, options);
  }

  async registerBatch({ declarations }, options) {
    const answer = await this.#integrity("POST", "/records/batch", { body: { declarations }, writes: true }, options);
    if (!hasResults(answer, declarations.length)) {
      throw notOfTheService({ status: 200, outcomeUnknown: true });
    }
    return answer;
  }

  async lookup({ publicId, companyReference, source, documentReference, version }, options) {
    return this.#integrity("GET", "/lookup", { query: { publicId, companyReference, source, documentReference, version } }, options);
  }

  async record({ publicId }, options) {
    return this.#integrity("GET", `/records/${segment("publicId", publicId)}`, {}, options);
  }

  async recordsPage({ sha256, companyReference, source, documentReference, status, receivedFrom, receivedTo, limit, after }, options) {
    const query = { sha256, companyReference, source, documentReference, status, receivedFrom, receivedTo, limit, after };
    return this.#integrity("GET", "/records", { query }, options);
  }

  records(of, options) {
    return pages((after) => this.recordsPage({ ...of, after }, options));
  }

  async evidence({ publicId, at, timestamps }, options) {
    return this.#integrity("GET", `/records/${segment("publicId", publicId)}/evidence`, { query: { at, timestamps }, raw: true }, options);
  }

  async evidenceOfMany({ publicIds, timestamps, wait }, options) {
    const request = { body: { publicIds, timestamps, wait }, held: 1000 * (wait ?? 0) };
    const answer = await this.#integrity("POST", "/records/evidence", request, options);
    if (!hasResults(answer, publicIds.length)) {
      throw notOfTheService({ status: 200 });
    }
    return answer;
  }

  async tlogProof({ publicId, wait }, options) {
    const request = { query: { wait }, binary: true, held: 1000 * (wait ?? 0) };
    return asProof(await this.#integrity("GET", `/records/${segment("publicId", publicId)}/tlog-proof`, request, options));
  }

  async report({ publicId, language }, options) {
    return asReport(await this.#integrity("GET", `/records/${segment("publicId", publicId)}/report`, { query: { lang: language }, binary: true }, options));
  }

  async revoke({ publicId, reason }, options) {
    return this.#integrity("POST", `/records/${segment("publicId", publicId)}/revoke`, { body: { reason }, writes: true }, options);
  }

  // ---- changes and usage

  async changesPage({ companyReference, after = 0, epoch, limit, wait } = {}, options) {
    const request = { query: { companyReference, after, epoch, limit, wait }, withMeta: true, newest: true, held: 1000 * (wait ?? 0) };
    const page = await this.#integrity("GET", "/changes", request, options);
    if (!isObject(page.meta) || !Number.isSafeInteger(page.meta.epoch)) {
      throw notOfTheService({ status: 200 });
    }
    this.#saw(page.data.nextCursor);
    return { ...page.data, epoch: page.meta.epoch };
  }

  async *changes({ companyReference, after = 0, epoch, limit, follow = false } = {}, options) {
    let wait;
    let known; // every page since the first event was read with the grants up to this sequence
    for (;;) {
      const asked = Date.now();
      const page = await this.changesPage({ companyReference, after, epoch, limit, wait }, options);
      known ??= after === 0 ? page.head : 0;
      for (const granted of page.grantedCompanies ?? []) {
        if (granted.sequence > known) {
          yield* this.#earlier({ companyReference: granted.companyReference, after, epoch: page.epoch, limit }, options);
        }
      }
      yield page;
      ({ epoch, nextCursor: after } = page);
      if (!page.hasMore && !follow) {
        return;
      }
      // A service with too many waiting readers answers an empty page at once.
      if (wait !== undefined && page.events.length === 0 && Date.now() - asked < 1000) {
        await pause(followPause, options?.signal);
      }
      wait = page.hasMore ? undefined : longPoll;
    }
  }

  // The events of a company up to a sequence, in pages whose cursor is that sequence.
  async *#earlier({ companyReference, after, epoch, limit }, options) {
    for (let next = 0, more = true; more && next < after;) {
      let page;
      try {
        page = await this.changesPage({ companyReference, after: next, epoch, limit }, options);
      } catch (error) {
        if (error.code === "COMPANY_NOT_AUTHORIZED") {
          return; // withdrawn since; a page will name another grant
        }
        throw error;
      }
      ({ nextCursor: next, hasMore: more } = page);
      yield { ...page, events: page.events.filter((e) => e.sequence <= after), nextCursor: after, hasMore: true };
    }
  }

  async usage(options) {
    return this.#integrity("GET", "/usage", {}, options);
  }

  async usageEntriesPage({ period, limit, after } = {}, options) {
    return this.#integrity("GET", "/usage/entries", { query: { period, limit, after } }, options);
  }

  usageEntries({ period, limit } = {}, options) {
    return pages(async (after) => {
      const page = await this.usageEntriesPage({ period, limit, after }, options);
      ({ period } = page); // a cursor belongs to its month
      return page;
    });
  }

  // ---- the organization, its keys and members

  async organization(options) {
    return this.#organization("GET", "", {}, options);
  }

  async apiKeysPage({ limit, after } = {}, options) {
    return this.#organization("GET", "/keys", { query: { limit, after } }, options);
  }

  apiKeys({ limit } = {}, options) {
    return pages((after) => this.apiKeysPage({ limit, after }, options));
  }

  async apiKey({ keyId }, options) {
    return this.#organization("GET", `/keys/${segment("keyId", keyId)}`, {}, options);
  }

  async createApiKey(key, options) {
    return this.#organization("POST", "/keys", { body: key, writes: true }, options);
  }

  async updateApiKey({ keyId, name, expiresAt }, options) {
    return this.#organization("PATCH", `/keys/${segment("keyId", keyId)}`, { body: { name, expiresAt }, writes: true }, options);
  }

  async rotateApiKey({ keyId, overlapSeconds, copyGrants, expiresAt }, options) {
    const body = { overlapSeconds, copyGrants, expiresAt };
    return this.#organization("POST", `/keys/${segment("keyId", keyId)}/rotate`, { body, writes: true }, options);
  }

  async revokeApiKey({ keyId }, options) {
    return this.#organization("DELETE", `/keys/${segment("keyId", keyId)}`, { writes: true }, options);
  }

  async membersPage({ limit, after } = {}, options) {
    return this.#organization("GET", "/members", { query: { limit, after } }, options);
  }

  members({ limit } = {}, options) {
    return pages((after) => this.membersPage({ limit, after }, options));
  }

  async inviteMember({ email, role }, options) {
    return this.#organization("POST", "/members", { body: { email, role }, writes: true }, options);
  }

  async updateMember({ memberId, role, status }, options) {
    return this.#organization("PATCH", `/members/${segment("memberId", memberId)}`, { body: { role, status }, writes: true }, options);
  }

  async endMember({ memberId }, options) {
    return this.#organization("DELETE", `/members/${segment("memberId", memberId)}`, { writes: true }, options);
  }

  // ---- public: no key is needed or sent

  async compareBytes({ publicId, bytes }, options) {
    return this.compare({ publicId, sha256: await sha256(bytes) }, options);
  }

  async compare({ publicId, sha256 }, options) {
    const result = await this.#call("GET", `/api/public/integrity/${segment("publicId", publicId)}`, { query: { sha256 }, open: true }, options);
    if (result.publicId !== publicId || typeof result.verified !== "boolean") {
      throw new IntegrityError("UNREADABLE_ANSWER", "The answer is not about this record.", { status: 200 });
    }
    return result;
  }

  async receipt({ publicId }, options) {
    return this.#call("GET", `/api/public/integrity/${segment("publicId", publicId)}/receipt`, { raw: true, open: true }, options);
  }

  async publicTlogProof({ publicId }, options) {
    return asProof(await this.#call("GET", `/api/public/integrity/${segment("publicId", publicId)}/tlog-proof`, { binary: true, open: true }, options));
  }

  async publicReport({ publicId, language }, options) {
    const request = { query: { lang: language }, binary: true, open: true };
    return asReport(await this.#call("GET", `/api/public/integrity/${segment("publicId", publicId)}/report`, request, options));
  }

  // The transparency log: what it answers proves nothing until it is checked.

  async logCheckpoint(options) {
    return utf8(await this.#log("checkpoint", {}, options));
  }

  async logTimestampsPage({ after = 0 } = {}, options) {
    const bytes = await this.#log("timestamps", { after }, options);
    const page = parsed(utf8(bytes));
    const sizes = Array.isArray(page?.timestamps) ? page.timestamps.map((stamped) => stamped?.treeSize) : [undefined];
    if (typeof page?.hasMore !== "boolean" || (page.hasMore && sizes.length === 0) || !sizes.every((size) => Number.isSafeInteger(size) && size > after)) {
      throw notOfTheService({ status: 200 });
    }
    return page;
  }

  async *logTimestamps({ after = 0 } = {}, options) {
    for (;;) {
      const page = await this.logTimestampsPage({ after }, options);
      yield page;
      if (!page.hasMore) {
        return;
      }
      after = page.timestamps.at(-1).treeSize;
    }
  }

  async logTile({ level, n, width = tileWidth }, options) {
    if (![level, n].every((number) => Number.isSafeInteger(number) && number >= 0) || !Number.isInteger(width) || width < 1 || width > tileWidth) {
      throw new TypeError("level and n must be at least 0, and width 1 to 256");
    }
    const groups = [];
    for (let rest = n; groups.length === 0 || rest > 0; rest = Math.floor(rest / 1000)) {
      groups.unshift(`${groups.length === 0 ? "" : "x"}${String(rest % 1000).padStart(3, "0")}`);
    }
    const path = `tile/${level}/${groups.join("/")}`;
    let hashes;
    try {
      hashes = await this.#log(width === tileWidth ? path : `${path}.p/${width}`, {}, options);
    } catch (error) {
      if (error.status !== 404 || width === tileWidth) {
        throw error;
      }
      hashes = (await this.#log(path, {}, options)).subarray(0, 32 * width); // the partial one is no longer kept
    }
    if (hashes.length !== 32 * width) {
      throw new IntegrityError("UNREADABLE_ANSWER", "The tile has another number of hashes.", { status: 200 });
    }
    return hashes;
  }

  // ---- one request

  #log(path, query, options) {
    return this.#call("GET", `/api/public/log/${path}`, { query, open: true, binary: true }, options);
  }

  #integrity(method, path, request, options) {
    return this.#call(method, `/api/v1/integrity${path}`, request, options);
  }

  #organization(method, path, request, options) {
    return this.#call(method, `/api/v1/organization${path}`, request, options);
  }

  // writes: an answer that does not come leaves the outcome unknown. raw: the answer
  // is no envelope. binary: it is bytes. open: no key is sent. held: milliseconds that the service may
  // hold the request open. newest: the answer shows everything that was committed;
  // others, soon after a write, at least what this client has seen.
  async #call(method, path, request, { signal, timeout = this.#timeout } = {}) {
    const { query = {}, body, writes = false, raw = false, open = false, withMeta = false, binary = false, newest = false, held = 0 } = request;
    if (!open && this.#apiKey === null) {
      throw new TypeError("apiKey: this operation needs one; the client was made without");
    }
    const url = new URL(path, this.#origin);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) {
        url.searchParams.set(name, String(value));
      }
    }
    const headers = { Accept: binary ? "*/*" : "application/json" };
    if (!inBrowser()) {
      // In a page, a header of our own would need a preflight request.
      headers["Integrity-Version"] = headers["User-Agent"] = product;
    }
    if (!open) {
      headers.Authorization = `Bearer ${this.#apiKey}`;
      if (method === "GET" && !newest && performance.now() < this.#sessionEnd) {
        headers["Integrity-Read-After"] = String(this.#seen);
      }
    }
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    const limit = checkTimeout(timeout) + held;
    const clock = AbortSignal.timeout(limit);
    const stop = signal ? AbortSignal.any([signal, clock]) : clock;
    // The clock alone does not keep Node.js running, and a stream that cannot be unpacked obeys no signal.
    const awake = setTimeout(() => {}, limit + 1000);
    let response;
    let text;
    try {
      response = await fetch(url, {
        method, headers, body: body === undefined ? undefined : JSON.stringify(body),
        redirect: "manual", cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer", signal: stop,
      });
      text = await before(stop, read(response, binary && response.ok));
    } catch (cause) {
      throw failed(cause, { signal, clock, writes, status: response?.status });
    } finally {
      clearTimeout(awake);
    }
    if (text instanceof Uint8Array) {
      return text;
    }
    const result = answer(response, text, { writes, raw, withMeta, query });
    if (/^\d{1,16}$/.test(response.headers.get("Integrity-Sequence") ?? "")) {
      this.#saw(Number(response.headers.get("Integrity-Sequence")));
      this.#sessionEnd = performance.now() + sessionLength;
    }
    return result;
  }

  #saw(sequence) {
    if (Number.isSafeInteger(sequence) && sequence > this.#seen) {
      this.#seen = sequence;
    }
  }
}

// asProof is the text of a transparency log proof, of which nothing but the first line was looked at.
function asProof(bytes) {
  const text = utf8(bytes);
  if (!text.startsWith("c2sp.org/tlog-proof@v1\n")) {
    throw notOfTheService({ status: 200 });
  }
  return text;
}

// asReport is an evidence report, of which nothing but the first bytes was looked at.
function asReport(bytes) {
  if (String.fromCharCode(...bytes.subarray(0, 5)) !== "%PDF-") {
    throw notOfTheService({ status: 200 });
  }
  return bytes;
}

// pages asks for page after page, to the end; not in a circle, which comes back to a mark that is set ever more rarely
// (Brent's algorithm).
async function* pages(ask) {
  let after;
  let mark;
  for (let n = 1, next = 1; ; n++) {
    const page = await ask(after);
    yield page;
    if (!page.hasMore) {
      return;
    }
    after = page.nextCursor;
    if (after === mark) {
      throw notOfTheService({ status: 200 });
    }
    if (n === next) {
      mark = after;
      next *= 2;
    }
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// hasResults reports whether an answer has one result for each item of the request.
const hasResults = ({ results }, items) => Array.isArray(results) && results.length === items &&
  results.every((one) => isObject(one) && Number.isInteger(one.status) && (isObject(one.data) || isObject(one.error)));

const notOfTheService = (details) => new IntegrityError("UNREADABLE_ANSWER", "The answer is not one of this service.", details);

// parsed reads JSON; any other text gives null.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// isPage reports whether data is a page that follows a cursor: a list of objects, and a cursor that moves.
function isPage(data, after) {
  const { hasMore, nextCursor } = data;
  const list = Object.values(data).find((member) => Array.isArray(member) && member.every(isObject));
  if (typeof hasMore !== "boolean" || list === undefined) {
    return false;
  }
  if (typeof after === "number") {
    // The feed: a cursor that stands would hand out the same events without end.
    return list === data.events && Number.isSafeInteger(nextCursor) && (hasMore || list.length > 0 ? nextCursor > after : nextCursor >= after);
  }
  return !hasMore || (typeof nextCursor === "string" && nextCursor !== "" && nextCursor !== after);
}

// before rejects once a signal is aborted, whatever becomes of the promise.
function before(signal, promise) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) {
      stop();
    }
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

// utf8 reads bytes of this service as text.
function utf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new IntegrityError("UNREADABLE_ANSWER", "The answer could not be read.", { status: 200, cause });
  }
}

// read takes a bounded answer of UTF-8, or of bytes. What it refuses is a RangeError.
async function read(response, binary) {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const pieces = [];
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true };
    size += value?.length ?? 0;
    try {
      if (size > maxAnswer) {
        throw new RangeError("the answer is too long");
      }
      if (!binary) {
        text += decoder.decode(value, { stream: !done });
      } else if (value) {
        pieces.push(value);
      }
    } catch (error) {
      reader.cancel().catch(() => {}); // it may never end
      throw new RangeError(error.message);
    }
    if (done) {
      return binary ? new Uint8Array(await new Blob(pieces).arrayBuffer()) : text;
    }
  }
}

// A connection that was never made has sent nothing.
const neverConnected = (error) =>
  error?.code === "UND_ERR_CONNECT_TIMEOUT" || error?.syscall === "connect" || error?.syscall === "getaddrinfo" || (error?.errors?.every(neverConnected) ?? false);

// failed says why there is no answer. A write may have been done all the same.
function failed(cause, { signal, clock, writes, status }) {
  const outcomeUnknown = writes && !neverConnected(cause.cause);
  const details = { cause, status, outcomeUnknown, retryable: !outcomeUnknown };
  if (signal?.aborted) {
    return new IntegrityError("ABORTED", "The caller aborted the request.", { ...details, retryable: false });
  }
  if (clock.aborted) {
    return new IntegrityError("TIMEOUT", "The service did not answer in time.", details);
  }
  if (cause instanceof RangeError) {
    return new IntegrityError("UNREADABLE_ANSWER", "The answer could not be read.", { ...details, retryable: false });
  }
  return new IntegrityError("NETWORK", "The service could not be reached, or the connection broke.", details);
}

function answer(response, text, { writes, raw, withMeta, query }) {
  const { status } = response;
  const requestId = response.headers.get("X-Request-Id");
  if (response.type === "opaqueredirect" || (status >= 300 && status < 400)) {
    throw new IntegrityError("REDIRECT_REFUSED", "The service answered with a redirect; check baseUrl.", { status, requestId, outcomeUnknown: writes });
  }
  const value = parsed(text);
  if (status >= 200 && status < 300) {
    const data = value?.data;
    const good = raw ? typeof value?.payload === "string" : isObject(data) && Object.keys(data).length > 0 && (!("after" in query) || isPage(data, query.after));
    if (!good) {
      throw notOfTheService({ status, requestId, outcomeUnknown: writes });
    }
    return raw || withMeta ? value : data;
  }
  throw refused(status, value?.error, response.headers.get("Retry-After"), requestId, writes);
}

// refused is the service's own error. After a 5xx, or an answer that is not the service's, a write may have been done;
// after a 408 it was not: it had not arrived.
function refused(status, error, retryAfter, requestId, writes) {
  const wait = secondsOf(retryAfter);
  if (typeof error?.code !== "string") {
    return new IntegrityError("UNREADABLE_ANSWER", `HTTP ${status} without an error of this service.`, { status, requestId, outcomeUnknown: writes, retryAfter: wait });
  }
  const retryable = error.retryable === true || status === 408;
  return new IntegrityError(error.code, typeof error.detail === "string" ? error.detail : `HTTP ${status}`, {
    status, requestId, retryable,
    outcomeUnknown: writes && status >= 500,
    retryAfter: retryable || status >= 500 ? wait : null,
    fields: Array.isArray(error.errors) ? error.errors.filter(isObject) : [],
    existing: isObject(error.existing) ? error.existing : null,
  });
}

// secondsOf reads both forms of Retry-After (RFC 9110, section 10.2.3).
function secondsOf(retryAfter) {
  if (/^\d{1,9}$/.test(retryAfter ?? "")) {
    return Number(retryAfter);
  }
  const at = /^[A-Z][a-z]{2}, .+ GMT$/.test(retryAfter ?? "") ? Date.parse(retryAfter) : NaN;
  return Number.isNaN(at) ? null : Math.max(0, Math.ceil((at - Date.now()) / 1000));
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new IntegrityError("ABORTED", "The caller aborted the request.", { cause: signal.reason }));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) {
      stop();
    }
    signal?.addEventListener("abort", stop, { once: true });
  });
}
