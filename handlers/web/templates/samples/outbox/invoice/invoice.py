# Makes the invoices up to a number, in PostgreSQL:
#
#   export INVOICE_DATABASE='postgresql://billing:secret@127.0.0.1/billing'
#   python3 invoice.py 1000
#
# It needs psycopg2 (Debian: python3-psycopg2). Started again after any failure, it goes on after the last
# invoice that was committed.
import hashlib
import os
import sys

import psycopg2

db = psycopg2.connect(os.environ["INVOICE_DATABASE"])
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS invoices (number int PRIMARY KEY, pdf bytea NOT NULL)")
cursor.execute("SELECT coalesce(max(number), 0) FROM invoices")
(last,) = cursor.fetchone()
db.commit()
for number in range(last + 1, int(sys.argv[1]) + 1):
    pdf = b"%%PDF-1.7\n%% Invoice %d\n%%%%EOF\n" % number  # your program makes the file here
    # The first statement begins a transaction: both rows, or none.
    cursor.execute("INSERT INTO invoices (number, pdf) VALUES (%s, %s)", (number, pdf))
    cursor.execute(
        "INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes,"
        " mime_type) VALUES (%s, 'python', %s, 1, %s, %s, 'application/pdf')",
        (os.environ["INTEGRITY_COMPANY"], f"invoice-{number}", hashlib.sha256(pdf).hexdigest(), len(pdf)),
    )
    # One order in a hundred is cancelled at this point, to show that the rollback takes both rows.
    if number % 100 == 50:
        db.rollback()
        continue
    db.commit()
    print(f"invoice-{number}", flush=True)  # deliver the file now: a worker registers it
