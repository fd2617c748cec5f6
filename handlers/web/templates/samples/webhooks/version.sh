jq '.version = 2 | .previousVersion = 1' declaration.json |
  curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/records" \
    -H "Authorization: Bearer $INTEGRITY_API_KEY" \
    -H "Content-Type: application/json" -d @- | tee second.json
