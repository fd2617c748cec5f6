printf 'The final bytes of a document.\n' > document.txt
echo '{"companyReference": "'$INTEGRITY_COMPANY'", "source": "quick-start",
  "documentReference": "document-'$(date +%s)-$$'", "version": 1,
  "sha256": "'$(sha256sum < document.txt | cut -c1-64)'", "sizeBytes": '$(wc -c < document.txt)',
  "mimeType": "text/plain", "generatedAt": "'$(date -u +%FT%TZ)'"}' > declaration.json
curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/records" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  --json @declaration.json | tee record.json
