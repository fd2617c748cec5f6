// What the installed client makes of answers that are not the service's: its own error, in time.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Client, IntegrityError } from "integrity-client";

const { peers } = JSON.parse(await readFile(JSON.parse(process.env.SETUP).peers, "utf8"));
const mostPages = 20;

async function walk(pages) {
  let n = 0;
  for await (const _ of pages) {
    assert.ok(++n < mostPages, "it walks on and on");
  }
}

const operations = {
  read: (client) => client.usage(),
  write: (client) => client.register({ version: 1 }),
  list: (client) => walk(client.companies()),
  changes: (client) => walk(client.changes({ companyReference: "c" })),
  signed: (client) => client.evidence({ publicId: "a" }),
  many: (client) => client.evidenceOfMany({ publicIds: ["a", "b"] }),
  log: (client) => client.logTile({ level: 0, n: 0 }),
};

// Node.js takes these in without end, keeps nothing and hands nothing out.
const unseen = ["1xx without end", "a status line without end", "a chunk's size without end", "a chunk's extension without end", "a packed body of garbage"];

// The time limit is for a client that waits for ever, not for a slow machine.
test("every answer that is not the service's is the client's own error, in time", { timeout: 900_000 }, async () => {
  const failures = [];
  await Promise.all(peers.flatMap(({ name, origin, fails, holds }) => {
    // Not the clock may end an answer that can be judged, but for what Node.js never hands out.
    const long = !holds && !unseen.includes(name);
    const client = new Client({ baseUrl: origin, apiKey: "ik_secret", timeout: long ? 300_000 : 2000 });
    return fails.map((operation) => operations[operation](client).then(
      (result) => failures.push(`${name}, ${operation}: ${JSON.stringify(result)}`),
      (error) => (error instanceof IntegrityError && !(long && error.code === "TIMEOUT")) || failures.push(`${name}, ${operation}: ${error.stack}`),
    ));
  }));
  assert.deepEqual(failures, []);
  assert.ok(peers.length > 100);
});
