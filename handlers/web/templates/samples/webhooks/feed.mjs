import { readFile, rename, writeFile } from "node:fs/promises";

// The copy, in feed.json, with the position in the feed of each company.
const { INTEGRITY_BASE_URL, INTEGRITY_API_KEY, INTEGRITY_COMPANY } = process.env;
let copy = { events: {}, positions: {} };
try {
  copy = JSON.parse(await readFile("feed.json", "utf8"));
} catch (error) {
  if (error.code !== "ENOENT") throw error;
}
let more = true;
while (more) {
  const query = new URLSearchParams({
    companyReference: INTEGRITY_COMPANY, limit: 1000,
    ...(copy.positions[INTEGRITY_COMPANY] ?? { after: 0 }),
  });
  const response = await fetch(
    `${INTEGRITY_BASE_URL}/api/v1/integrity/changes?${query}`,
    {
      headers: { authorization: `Bearer ${INTEGRITY_API_KEY}` },
      signal: AbortSignal.timeout(60_000),
    },
  ).catch((error) => {
    console.error("no answer, run it again later:", (error.cause ?? error).message);
    process.exit(1);
  });
  const { data, error, meta } = await response.json();
  if (error) {
    console.error(response.status, error.code, error.detail);
    process.exit(1);
  }
  for (const event of data.events) copy.events[event.id] ??= event;
  copy.positions[INTEGRITY_COMPANY] = { after: data.nextCursor, epoch: meta.epoch };
  await writeFile("feed.new", JSON.stringify(copy));
  await rename("feed.new", "feed.json"); // events and position at once
  more = data.hasMore;
}
console.log(Object.keys(copy.events).length, "events");
