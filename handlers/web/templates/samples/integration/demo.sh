integrity origin-demo --company "$INTEGRITY_COMPANY" --documents 20
