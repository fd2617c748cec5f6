curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/reservations" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "companyReference": "'"$INTEGRITY_COMPANY"'",
    "source": "erp",
    "documentReference": "inv-2026-0001",
    "version": 1
  }'
