# with a key of an owner or admin that has integrity:admin
curl -sS "$INTEGRITY_BASE_URL/api/v1/integrity/companies" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"reference": "c-7f3a91"}'
curl -sS "$INTEGRITY_BASE_URL/api/v1/integrity/companies/$COMPANY_ID/access" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"keyId": "'"$WORKER_KEY_ID"'", "enabled": true}'
