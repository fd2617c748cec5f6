INTEGRITY_COMPANY="c-$(date +%s)"
curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/companies" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"reference": "'"$INTEGRITY_COMPANY"'"}' | tee company.json
COMPANY_ID=$(jq -r .data.id company.json)
WORKER_KEY_ID="key_$(echo "$INTEGRITY_API_KEY" | cut -d_ -f2)"
curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/companies/$COMPANY_ID/access" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"keyId": "'"$WORKER_KEY_ID"'", "enabled": true}'
