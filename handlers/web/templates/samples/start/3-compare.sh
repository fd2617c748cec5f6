curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/public/integrity/$PUBLIC_ID?sha256=$SHA256"
