jq '.companyReference = env.INTEGRITY_COMPANY' declaration.json > first.json
jq '.version = 2 | .previousVersion = 1' first.json > second.json
for VERSION in first second; do
  curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/records" \
    -H "Authorization: Bearer $INTEGRITY_API_KEY" \
    -H "Content-Type: application/json" -d @$VERSION.json | tee $VERSION-record.json
done
