// Generates clients of both documents that a running service serves, with each generator.
import { mkdirSync, writeFileSync } from "node:fs";
import { createClient } from "@hey-api/openapi-ts";
import openapiTS, { astToString } from "openapi-typescript";
import orval from "orval";

const address = process.env.ADDRESS;
for (const [name, path] of [["integrity", "/api/integrity-openapi"], ["certification", "/api/openapi"]]) {
  const url = address + path;
  mkdirSync("openapi-typescript", { recursive: true });
  writeFileSync(`openapi-typescript/${name}.ts`, astToString(await openapiTS(new URL(url))));
  await createClient({ input: url, output: `hey-api/${name}`, plugins: ["@hey-api/client-fetch", "@hey-api/sdk", "@hey-api/typescript"], logs: { level: "error" } });
  await orval.generate({ input: { target: url }, output: { target: `orval/${name}.ts`, client: "fetch", baseUrl: address } });
}
