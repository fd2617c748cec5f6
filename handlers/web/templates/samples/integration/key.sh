curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/organization/keys" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "name": "Billing",
    "scopes": ["integrity:write", "integrity:read"],
    "companies": ["'"$INTEGRITY_COMPANY"'"]
  }' | tee key.json
curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/companies" \
  -H "Authorization: Bearer $(jq -r .data.key key.json)"
