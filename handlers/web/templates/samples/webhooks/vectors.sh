curl -sS --fail-with-body -O "$INTEGRITY_BASE_URL/schemas/webhook-vectors.json"
node vectors.mjs
