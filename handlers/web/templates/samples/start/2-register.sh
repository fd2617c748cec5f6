curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/records" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -H "Content-Type: application/json" -d @declaration.json | tee record.json
PUBLIC_ID=$(jq -r .data.publicId record.json)
