curl -sS --fail-with-body -X POST \
  "$INTEGRITY_BASE_URL/api/v1/integrity/records/$(jq -r .data.publicId second-record.json)/revoke" \
  -H "Authorization: Bearer $ADMIN_KEY" \
  -H "Content-Type: application/json" -d '{"reason": "Declared by mistake."}'
