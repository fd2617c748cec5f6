"""verify_integrity of Integrity Ledger."""
