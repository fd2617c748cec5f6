curl -sS --fail-with-body -o evidence.json \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  "$INTEGRITY_BASE_URL/api/v1/integrity/records/$PUBLIC_ID/evidence"
curl -sS --fail-with-body -o trusted-keys.json \
  "$INTEGRITY_BASE_URL/.well-known/integrity-trusted-keys.json"
curl -sS --fail-with-body -O "$INTEGRITY_BASE_URL/developers/verify_integrity.py"
python3 verify_integrity.py evidence.json trusted-keys.json document.txt
