export INTEGRITY_COMPANY="c-$(date +%s)"
curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/companies" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{"reference": "'"$INTEGRITY_COMPANY"'"}' | tee company.json
COMPANY_ID=$(jq -r .data.id company.json)
for KEY in "$INTEGRITY_API_KEY" "$ADMIN_KEY"; do
  curl -sS --fail-with-body \
    "$INTEGRITY_BASE_URL/api/v1/integrity/companies/$COMPANY_ID/access" \
    -H "Authorization: Bearer $ADMIN_KEY" \
    -H "Content-Type: application/json" \
    -d '{"keyId": "key_'"$(echo "$KEY" | cut -d_ -f2)"'", "enabled": true}'
done
