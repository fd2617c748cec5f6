printf 'The final bytes of a document.\n' > document.txt
SHA256=$(sha256sum < document.txt | cut -c1-64)
cat > declaration.json <<END
{
  "companyReference": "$INTEGRITY_COMPANY",
  "source": "quick-start",
  "documentReference": "document-$(date +%s)-$$",
  "version": 1,
  "sha256": "$SHA256",
  "sizeBytes": $(wc -c < document.txt),
  "mimeType": "text/plain",
  "generatedAt": "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}
END
