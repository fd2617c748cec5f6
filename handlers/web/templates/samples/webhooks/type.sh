SEQUENCE=$(curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/integrity/webhooks/$WEBHOOK_ID/deliveries" \
  -H "Authorization: Bearer $ADMIN_KEY" |
  jq '[.data.deliveries[] | select(.type == "integrity.superseded").sequence] | max')
curl -sS --fail-with-body -G "$INTEGRITY_BASE_URL/api/v1/integrity/changes" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -d companyReference="$INTEGRITY_COMPANY" -d after=$((SEQUENCE - 1)) -d limit=1
