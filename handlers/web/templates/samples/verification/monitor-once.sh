curl -sS --fail-with-body -o evidence.json \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  "$INTEGRITY_BASE_URL/api/v1/integrity/records/$PUBLIC_ID/evidence"
integrity monitor "$INTEGRITY_BASE_URL" --trusted-keys trusted-keys.json \
  --state log.json --evidence evidence.json
