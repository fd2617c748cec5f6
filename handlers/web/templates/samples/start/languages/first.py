import hashlib
import json
import os
import time
import urllib.request
from pathlib import Path

document = b"The final bytes of a document.\n"
declaration = json.dumps({
    "companyReference": os.environ["INTEGRITY_COMPANY"], "source": "quick-start",
    "documentReference": f"document-{time.time_ns()}", "version": 1,
    "sha256": hashlib.sha256(document).hexdigest(), "sizeBytes": len(document),
    "mimeType": "text/plain",
    "generatedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
}).encode()
Path("document.txt").write_bytes(document)
Path("declaration.json").write_bytes(declaration)
request = urllib.request.Request(
    os.environ["INTEGRITY_BASE_URL"] + "/api/v1/integrity/records", declaration,
    {"Authorization": "Bearer " + os.environ["INTEGRITY_API_KEY"],
     "Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=60) as response:
    record = response.read()
Path("record.json").write_bytes(record)
print(record.decode())
