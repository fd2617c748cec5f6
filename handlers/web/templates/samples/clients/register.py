import asyncio
import os
from datetime import datetime, timezone
from pathlib import Path

from integrity_client import (
    IntegrityClient, Unanswered, final_bytes_declaration, reconcile_pending,
)

async def main() -> None:
    declaration = final_bytes_declaration(
        Path("document.txt"),
        company_reference=os.environ["INTEGRITY_COMPANY"],
        source="quick-start", document_reference="python", version=1,
        mime_type="text/plain",
        generated_at=datetime(2026, 11, 21, 9, 30, tzinfo=timezone.utc),
    )
    # In an origin system, store it now, in the transaction that stores the file.
    base_url = os.environ["INTEGRITY_BASE_URL"]
    async with IntegrityClient(base_url, os.environ["INTEGRITY_API_KEY"]) as client:
        try:
            record = await client.register(declaration)
        except Unanswered:  # later, as often as it takes
            record = await reconcile_pending(client, declaration)
    print(record["verificationUrl"])

asyncio.run(main())
