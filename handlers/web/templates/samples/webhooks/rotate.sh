curl -sS --fail-with-body -X POST \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/secret/rotate" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"overlapSeconds": 86400}' | tee rotated.json
