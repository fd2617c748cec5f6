curl -sS "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"url": "https://receiver.example/hook"}'
curl -sS "$INTEGRITY_BASE_URL/api/v1/integrity/companies/$COMPANY_ID/webhooks" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"webhookId": "'"$WEBHOOK_ID"'", "enabled": true}'
curl -sS -X POST "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/test" \
  -H "Authorization: Bearer $ADMIN_KEY"
