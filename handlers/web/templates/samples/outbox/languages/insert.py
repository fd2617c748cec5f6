import hashlib, os, secrets, sqlite3

document = b"The final bytes of an invoice\n"
reference = "inv-" + secrets.token_hex(8)
db = sqlite3.connect("documents.db")
db.execute("CREATE TABLE IF NOT EXISTS documents (reference varchar(64) PRIMARY KEY, content blob NOT NULL)")
with db:  # one transaction: both rows, or none
    db.execute("INSERT INTO documents VALUES (?, ?)", (reference, document))
    db.execute(
        "INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes,"
        " mime_type) VALUES (?, 'billing', ?, 1, ?, ?, 'text/plain')",
        (os.environ["INTEGRITY_COMPANY"], reference, hashlib.sha256(document).hexdigest(), len(document)),
    )
