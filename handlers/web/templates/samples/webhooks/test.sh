curl -sS --fail-with-body -X POST \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/test" \
  -H "Authorization: Bearer $ADMIN_KEY"
