curl -sS --fail-with-body -G "$INTEGRITY_BASE_URL/api/v1/integrity/lookup" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -d companyReference="$(jq -r .companyReference declaration.json)" \
  -d source="$(jq -r .source declaration.json)" \
  -d documentReference="$(jq -r .documentReference declaration.json)" \
  -d version=1
