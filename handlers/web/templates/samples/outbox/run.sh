curl -sS --fail-with-body -o trusted-keys.json \
  "$INTEGRITY_BASE_URL/.well-known/integrity-trusted-keys.json"
integrity outbox check
integrity outbox run --once --trusted-keys trusted-keys.json
