"""integrity_webhook of Integrity Ledger."""
