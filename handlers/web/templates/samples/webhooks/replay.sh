curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/replay" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"fromSequence": 1, "dryRun": true}'
