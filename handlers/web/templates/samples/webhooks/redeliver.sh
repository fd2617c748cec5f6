DELIVERY_ID=$(curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/deliveries" \
  -H "Authorization: Bearer $ADMIN_KEY" | \
  jq -r '[.data.deliveries[] | select(.type != "webhook.test")][0].id')
curl -sS --fail-with-body -X POST \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/deliveries/$DELIVERY_ID/redeliver" \
  -H "Authorization: Bearer $ADMIN_KEY"
