COMPANY_ID=$(curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/companies?all=true&limit=500" \
  -H "Authorization: Bearer $ADMIN_KEY" |
  jq -r '.data.companies[] | select(.reference == env.INTEGRITY_COMPANY).id')
test -n "$COMPANY_ID" || echo "Your organization has no company $INTEGRITY_COMPANY."
curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"url": "'"$RECEIVER"'"}' | tee webhook.json
WEBHOOK_ID=$(jq -r .data.id webhook.json)
curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/companies/$COMPANY_ID/webhooks" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"webhookId": "'"$WEBHOOK_ID"'", "enabled": true}'
