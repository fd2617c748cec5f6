printf 'The final bytes of a document.\n' > document.txt
echo '{"companyReference": "'$INTEGRITY_COMPANY'", "source": "quick-start",
  "documentReference": "document-'$(date +%s)-$$'", "mimeType": "text/plain",
  "sha256": "'$(sha256sum < document.txt | cut -c1-64)'", "version": 1,
  "generatedAt": "'$(date -u +%FT%TZ)'", "sizeBytes": '$(wc -c < document.txt)'}' |
  tee declaration.json | curl -sS --fail-with-body --json @- \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  "$INTEGRITY_BASE_URL/api/v1/integrity/records" | tee record.json
