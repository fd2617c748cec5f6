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
};

test("every answer that is not the service's is the client's own error, in time", { timeout: 240_000 }, async () => {
  const failures = [];
  await Promise.all(peers.map(async ({ name, origin, fails }) => {
    const client = new Client({ baseUrl: origin, apiKey: "ik_secret", timeout: 2000 });
    for (const operation of fails) {
      await operations[operation](client).then(
        (result) => failures.push(`${name}, ${operation}: ${JSON.stringify(result)}`),
        (error) => error instanceof IntegrityError || failures.push(`${name}, ${operation}: ${error.stack}`),
      );
    }
  }));
  assert.deepEqual(failures, []);
  assert.ok(peers.length > 100);
});
