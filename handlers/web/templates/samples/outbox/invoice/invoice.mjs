// Makes the invoices up to a number, in PostgreSQL:
//
//   export INVOICE_DATABASE='postgresql://billing:secret@127.0.0.1/billing'
//   npm install pg && node invoice.mjs 1000
//
// Started again after any failure, it goes on after the last invoice that was committed.
import { createHash } from "node:crypto";
import pg from "pg";

const { INVOICE_DATABASE, INTEGRITY_COMPANY } = process.env;
const db = new pg.Client({ connectionString: INVOICE_DATABASE });
await db.connect();
await db.query("CREATE TABLE IF NOT EXISTS invoices (number int PRIMARY KEY, pdf bytea NOT NULL)");
const { rows: [{ last }] } = await db.query("SELECT coalesce(max(number), 0) AS last FROM invoices");
for (let number = last + 1; number <= Number(process.argv[2]); number++) {
  const pdf = Buffer.from(`%PDF-1.7\n% Invoice ${number}\n%%EOF\n`); // your program makes the file here
  await db.query("BEGIN"); // both rows, or none
  await db.query("INSERT INTO invoices (number, pdf) VALUES ($1, $2)", [number, pdf]);
  await db.query(
    `INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes,
    mime_type) VALUES ($1, 'node', $2, 1, $3, $4, 'application/pdf')`,
    [INTEGRITY_COMPANY, `invoice-${number}`, createHash("sha256").update(pdf).digest("hex"), pdf.length],
  );
  // One order in a hundred is cancelled at this point, to show that the rollback takes both rows.
  if (number % 100 === 50) {
    await db.query("ROLLBACK");
    continue;
  }
  await db.query("COMMIT");
  console.log(`invoice-${number}`); // deliver the file now: a worker registers it
}
await db.end();
