curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/deliveries" \
  -H "Authorization: Bearer $ADMIN_KEY" | jq -c '.data.deliveries[] | {type, status, reason}'
