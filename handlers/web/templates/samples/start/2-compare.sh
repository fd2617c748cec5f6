PUBLIC_ID=$(jq -r .data.publicId record.json)
SHA256=$(sha256sum < document.txt | cut -c1-64)
curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/public/integrity/$PUBLIC_ID?sha256=$SHA256"
