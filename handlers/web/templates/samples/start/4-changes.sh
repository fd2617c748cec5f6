curl -sS --fail-with-body -G "$INTEGRITY_BASE_URL/api/v1/integrity/changes" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -d companyReference="$INTEGRITY_COMPANY" -d after=0 -d limit=100
