// What the installed client does when a service does not answer as it should.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, beforeEach, test } from "node:test";

import { Client, IntegrityError, sha256 } from "integrity-client";

let requests = [];
let readAfter; // of the last request
let reply;
const server = createServer((request, response) => {
  requests.push({ url: `${request.method} ${request.url}`, key: request.headers.authorization });
  readAfter = request.headers["integrity-read-after"];
  reply(request, response);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const baseUrl = `http://127.0.0.1:${server.address().port}`;
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  requests = [];
});

const client = new Client({ baseUrl, apiKey: "ik_secret" });
const json = (status, body, headers = {}) => (_, response) =>
  response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(typeof body === "string" ? body : JSON.stringify(body));
const failure = (status, code, more = {}) => ({ data: null, error: { code, status, detail: "…", retryable: status === 503 || status === 429, errors: [], ...more }, meta: {} });

// once requires that a call fails so, after exactly one request.
async function once(call, want) {
  requests = [];
  await assert.rejects(call(), (error) => {
    assert.ok(error instanceof IntegrityError, String(error));
    assert.deepEqual(Object.fromEntries(Object.keys(want).map((name) => [name, error[name]])), want);
    return true;
  });
  assert.equal(requests.length, 1, JSON.stringify(requests));
}
const write = () => client.register({ version: 1 });
const readOnly = () => client.usage();

test("no request is ever repeated; a write without an answer has an unknown outcome", async () => {
  reply = json(503, failure(503, "TEMPORARILY_UNAVAILABLE"), { "Retry-After": "7", "X-Request-Id": "r1" });
  const away = { code: "TEMPORARILY_UNAVAILABLE", status: 503, retryable: true, retryAfter: 7, requestId: "r1" };
  await once(write, { ...away, outcomeUnknown: true });
  await once(readOnly, { ...away, outcomeUnknown: false });
  reply = json(429, failure(429, "RATE_LIMITED"), { "Retry-After": "12" });
  await once(write, { code: "RATE_LIMITED", retryAfter: 12, outcomeUnknown: false });
  reply = (request) => request.socket.destroy();
  await once(write, { code: "NETWORK", status: null, retryable: false, outcomeUnknown: true });
  await once(readOnly, { code: "NETWORK", retryable: true, outcomeUnknown: false });
  reply = (request, response) =>
    request.resume().on("end", () => {
      response.writeHead(201, { "Content-Length": "100" }).write('{"data":', () => request.socket.end());
    });
  await once(write, { code: "NETWORK", status: 201, outcomeUnknown: true });
});

// Every client makes the same of an answer: schemas/outcome-vectors.json.
test("refused, unknown, or worth sending again", async () => {
  const gone = createServer();
  await new Promise((resolve) => gone.listen(0, "127.0.0.1", resolve));
  const nobody = new Client({ baseUrl: `http://127.0.0.1:${gone.address().port}`, apiKey: "ik_secret" });
  await new Promise((resolve) => gone.close(resolve));
  const readme = await readFile(new URL("README.md", import.meta.resolve("integrity-client")), "utf8");
  const [text] = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code).filter((code) => code.includes("catch (error)"));
  const sample = new (async () => {}).constructor("client", "declaration", text);
  const { vectors } = JSON.parse(await readFile(JSON.parse(process.env.SETUP).outcomes, "utf8"));
  for (const vector of vectors) {
    reply = (request, response) =>
      request.resume().on("end", () => {
        if (vector.break === "answer") {
          request.socket.destroy();
        } else if (vector.break === "body") {
          response.writeHead(201, { "Content-Length": "100" }).write('{"data":', () => request.socket.end());
        } else {
          response.writeHead(vector.answer.status, vector.answer.headers).end(vector.answer.body);
        }
      });
    const asked = vector.break === "connect" ? nobody : client;
    requests = [];
    const error = await asked.register({ version: 1 }).then(() => assert.fail(vector.name), (reason) => reason);
    assert.ok(error instanceof IntegrityError, `${vector.name}: ${error}`);
    const { refused, outcomeUnknown, retryAfter, retryAfterAtLeast } = vector.want;
    assert.equal(error.outcomeUnknown, outcomeUnknown, vector.name);
    if (!outcomeUnknown) {
      assert.equal(error.retryable, !refused, vector.name);
    }
    if (retryAfterAtLeast === undefined) {
      assert.equal(error.retryAfter ?? 0, retryAfter, vector.name);
    } else {
      assert.ok(error.retryAfter >= retryAfterAtLeast, `${vector.name}: ${error.retryAfter}`);
    }
    assert.equal(requests.length, vector.break === "connect" ? 0 : 1, vector.name);

    // The sample of the package's README keeps what may be sent again, and tells of what needs a correction.
    const told = await sample(asked, { version: 1 }).then(() => false, () => true);
    assert.equal(told, refused, `README: ${vector.name}`);
  }
});

test("a call ends in time, headers and body alike, and when it is aborted", { timeout: 60_000 }, async (t) => {
  // The clock is ours: it strikes when a test says so.
  let clock;
  const asked = [];
  t.mock.method(AbortSignal, "timeout", (milliseconds) => {
    asked.push(milliseconds);
    clock = new AbortController();
    return clock.signal;
  });
  reply = () => clock.abort();
  await once(write, { code: "TIMEOUT", outcomeUnknown: true, retryable: false });
  await once(() => client.usage({ timeout: 50 }), { code: "TIMEOUT", outcomeUnknown: false, retryable: true });
  await once(() => client.changesPage({ companyReference: "c", wait: 25 }), { code: "TIMEOUT" });
  assert.deepEqual(asked, [30_000, 50, 55_000]);

  const { fetch } = globalThis;
  t.mock.method(globalThis, "fetch", async (...request) => {
    const response = await fetch(...request);
    clock.abort(); // between the headers and the end of the body
    return response;
  });
  reply = (_, response) => response.writeHead(201).write("{");
  await once(write, { code: "TIMEOUT", status: 201, outcomeUnknown: true });
  globalThis.fetch.mock.restore();

  const stop = new AbortController();
  reply = () => stop.abort(); // the clock never strikes here
  await once(() => client.register({}, { signal: stop.signal }), { code: "ABORTED", outcomeUnknown: true });
});

test("a follower waits where the service holds no empty page open", async (t) => {
  t.mock.method(Date, "now", () => 0); // every page comes at once
  reply = json(200, { data: { events: [], nextCursor: 7, hasMore: false }, meta: { epoch: 1 } });
  const stop = new AbortController();
  const pages = client.changes({ companyReference: "c", after: 7, follow: true }, { signal: stop.signal });
  await pages.next();
  await pages.next();
  assert.deepEqual(requests.map((request) => request.url), [
    "GET /api/v1/integrity/changes?companyReference=c&after=7", "GET /api/v1/integrity/changes?companyReference=c&after=7&epoch=1&wait=25",
  ]);
  let third;
  const asked = new Promise((resolve) => (reply = resolve));
  const next = assert.rejects((third = pages.next()), { code: "ABORTED" });
  await Promise.race([asked, third, new Promise((resolve) => setTimeout(resolve, 300))]);
  stop.abort();
  await next;
  assert.equal(requests.length, 2);
});

test("redirects are refused, and the key goes nowhere else", async () => {
  reply = (_, response) => response.writeHead(307, { Location: `${baseUrl}/elsewhere` }).end();
  await once(write, { code: "REDIRECT_REFUSED", status: 307 });
  await once(() => client.evidence({ publicId: "a" }), { code: "REDIRECT_REFUSED" });
});

test("an answer of something else than this service is no result", async () => {
  for (const body of ["", "<html>", "[]", "null", '{"data":null}', "\xff"]) {
    reply = json(200, body);
    await once(readOnly, { code: "UNREADABLE_ANSWER", status: 200 });
  }
  reply = (_, response) => response.writeHead(200).end(Buffer.from('{"data":{"status":"\xff"}}', "latin1"));
  await once(write, { code: "UNREADABLE_ANSWER", outcomeUnknown: true });
  reply = json(502, "<html>Bad Gateway</html>");
  await once(write, { code: "UNREADABLE_ANSWER", status: 502, outcomeUnknown: true });
  reply = json(200, { data: { publicId: "b", verified: true } });
  await once(() => client.verifyBytes({ publicId: "a", bytes: new ArrayBuffer(1) }), { code: "UNREADABLE_ANSWER" });
  await once(() => client.compare({ publicId: "a" }), { code: "UNREADABLE_ANSWER" });
  let sent = 0;
  reply = (_, response) => {
    response.writeHead(200);
    const piece = Buffer.alloc(1 << 20, 0x20);
    const more = () => {
      if (!response.destroyed) {
        sent += piece.length;
        response.write(piece, more);
      }
    };
    more();
  };
  await once(readOnly, { code: "UNREADABLE_ANSWER" });
  assert.ok(sent < 128 << 20, "an endless answer was read on and on");
});

test("the key is sent where it is needed and not to public addresses", async () => {
  reply = json(200, { data: { publicId: "a", verified: false }, payload: "x" });
  await client.compare({ publicId: "a", sha256: "b" });
  await client.receipt({ publicId: "a" });
  await client.verifyHash({ publicId: "a", sha256: "b" });
  assert.deepEqual(requests, [
    { url: "GET /api/public/integrity/a?sha256=b", key: undefined },
    { url: "GET /api/public/integrity/a/receipt", key: undefined },
    { url: "POST /api/v1/verify", key: "Bearer ik_secret" },
  ]);
});

test("the log's tiles are bytes, a partial one the whole one cut, and its pages end", async () => {
  const hashes = Buffer.alloc(32 * 256, 0xff);
  reply = (request, response) => {
    assert.equal(request.headers.accept, "*/*");
    return request.url.includes(".p/") ? json(404, failure(404, "NOT_FOUND"))(request, response) : response.end(hashes);
  };
  assert.deepEqual(Buffer.from(await client.logTile({ level: 1, n: 1234067, width: 5 })), hashes.subarray(0, 160));
  assert.deepEqual(requests.map(({ url, key }) => [url, key]), [
    ["GET /api/public/log/tile/1/x001/x234/067.p/5", undefined], ["GET /api/public/log/tile/1/x001/x234/067", undefined],
  ]);
  assert.equal((await client.logTile({ level: 0, n: 0 })).length, hashes.length);
  assert.match(requests.at(-1).url, /tile\/0\/000$/);
  reply = (_, response) => response.end("short");
  await once(() => client.logTile({ level: 0, n: 0 }), { code: "UNREADABLE_ANSWER" });
  assert.equal(await client.logCheckpoint(), "short");
  await once(() => client.logTimestampsPage(), { code: "UNREADABLE_ANSWER" });
  reply = (_, response) => response.end(Buffer.from([0xff]));
  await once(() => client.logCheckpoint(), { code: "UNREADABLE_ANSWER" });
  requests = [];
  reply = ({ url }, response) => json(200, { timestamps: [{ treeSize: url.endsWith("=0") ? 3 : 9 }], hasMore: url.endsWith("=0") })(undefined, response);
  const sizes = [];
  for await (const page of client.logTimestamps()) {
    sizes.push(page.timestamps[0].treeSize);
  }
  assert.deepEqual([sizes, requests.map(({ url }) => url)], [[3, 9], ["GET /api/public/log/timestamps?after=0", "GET /api/public/log/timestamps?after=3"]]);
  await assert.rejects(client.logTile({ level: 0, n: -1 }), TypeError);
});

test("wrong arguments are refused before anything is sent", async () => {
  for (const url of [
    "http://ledger.example", "http://127.0.0.1.example", "ftp://ledger.example", "https://ledger.example/api/v1", "https://a:b@ledger.example",
    "https://ledger.example/?", "https://ledger.example/#x", "ledger.example", "", undefined,
  ]) {
    assert.throws(() => new Client({ baseUrl: url, apiKey: "k" }), TypeError, String(url));
  }
  for (const url of ["https://ledger.example", "https://ledger.example:8443/", "http://localhost:8080", "http://[::1]:8080"]) {
    new Client({ baseUrl: url });
  }
  for (const apiKey of ["", "with space", "line\nbreak", "ключ", 7]) {
    assert.throws(() => new Client({ baseUrl, apiKey }), (error) => error instanceof TypeError && !error.message.includes(String(apiKey) || "\0"));
  }
  for (const timeout of [0, -1, 1.5, "30", 1e9, Infinity]) {
    assert.throws(() => new Client({ baseUrl, timeout }), TypeError);
  }
  for (const publicId of ["", "../../v1/me", "a/b", "a?b", undefined]) {
    await assert.rejects(client.record({ publicId }), TypeError);
  }
  await assert.rejects(client.verifyBytes({ publicId: "a", bytes: "text" }), TypeError);
  await assert.rejects(sha256([1, 2]), TypeError);
  assert.deepEqual(requests, []);
});

test("a key is refused where a browser's page or worker runs", () => {
  for (const name of ["document", "importScripts"]) {
    globalThis[name] = () => {};
    try {
      assert.throws(() => new Client({ baseUrl, apiKey: "ik_secret" }), /servers only/);
      new Client({ baseUrl });
    } finally {
      delete globalThis[name];
    }
  }
});

test("only the bytes of a view are hashed", async () => {
  const whole = new TextEncoder().encode("xabcx");
  assert.equal(await sha256(whole.subarray(1, 4)), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert.equal(await sha256(Buffer.from("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});

test("a client that has written lately asks for what it has seen, and for everything otherwise", async (t) => {
  let now = 1_000;
  t.mock.method(performance, "now", () => now);
  const own = new Client({ baseUrl, apiKey: "ik_secret" });
  const asked = async (call) => {
    await call();
    return readAfter;
  };
  let sequence = 7;
  reply = (request, response) => {
    const changes = request.url.includes("/changes");
    const headers = request.method === "POST" ? { "Integrity-Sequence": String(sequence) } : {};
    json(200, { data: changes ? { events: [], nextCursor: sequence, hasMore: false } : { a: 1 }, error: null, meta: { epoch: 1 } }, headers)(request, response);
  };
  const read = () => own.record({ publicId: "a" });
  const write = () => own.register({ version: 1 });
  const feed = () => own.changesPage({ companyReference: "c" });
  assert.equal(await asked(feed), undefined);
  assert.equal(await asked(read), undefined);
  assert.equal(await asked(write), undefined);
  assert.equal(await asked(read), "7");
  sequence = 9;
  assert.equal(await asked(feed), undefined);
  assert.equal(await asked(read), "9");
  sequence = 8; // of an answer that was overtaken
  await write();
  assert.equal(await asked(read), "9");
  now += 10_000;
  assert.equal(await asked(read), undefined);
  reply = json(503, failure(503, "TEMPORARILY_UNAVAILABLE"), { "Integrity-Sequence": "10" });
  await assert.rejects(write());
  reply = json(200, { data: { a: 1 }, error: null, meta: {} });
  assert.equal(await asked(read), undefined);
});
