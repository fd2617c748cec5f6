python3 - <<'END'
import sqlite3
for row in sqlite3.connect("documents.db").execute(
    "SELECT document_reference, state, verification_url, length(evidence) > 0 FROM integrity_outbox ORDER BY id"
):
    print(*row)
END
