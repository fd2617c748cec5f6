curl -sS --fail-with-body -o stamped.json \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  "$INTEGRITY_BASE_URL/api/v1/integrity/records/$PUBLIC_ID/evidence?timestamps=true"
curl -sS --fail-with-body -o trusted-keys.json \
  "$INTEGRITY_BASE_URL/.well-known/integrity-trusted-keys.json"
integrity verify --require-timestamp stamped.json trusted-keys.json document.txt
python3 verify_integrity.py --require-timestamp stamped.json trusted-keys.json document.txt
