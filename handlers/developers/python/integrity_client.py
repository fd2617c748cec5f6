"""integrity_client of Integrity Ledger."""
