api() { curl -sS --fail-with-body -H "Authorization: Bearer $ADMIN_KEY" "$@"; }
echo 'The annual report.' > report.txt
api "$INTEGRITY_BASE_URL/api/v1/artifacts" -o artifact.json \
  -H "Idempotency-Key: report-$(date +%s)" \
  -F 'metadata={"title":"Annual report"};type=application/json' -F 'file=@report.txt'
ARTIFACT=$(jq -r .data.artifact.id artifact.json)
VERSION=$(jq -r .data.version.id artifact.json)
echo '{"versionId":"'"$VERSION"'","outcome":"accepted","statement":"Read in full.","acceptResponsibility":true}' > review.json
api "$INTEGRITY_BASE_URL/api/v1/artifacts/$ARTIFACT/reviews" \
  -F 'metadata=<review.json;type=application/json' -F 'file=@report.txt'
api "$INTEGRITY_BASE_URL/api/v1/versions/$VERSION/approve" \
  --json '{"statement":"Approved for publication.","acceptResponsibility":true}'
api "$INTEGRITY_BASE_URL/api/v1/versions/$VERSION/certificates" \
  --json '{"publicationAuthorized":true,"publicFields":["title"]}' | tee issued.json
CERTIFICATE=$(jq -r .data.certificate.publicId issued.json)
REPORT_SHA256=$(sha256sum < report.txt | cut -c1-64)
curl -sS --fail-with-body \
  "$INTEGRITY_BASE_URL/api/v1/certificates/$CERTIFICATE/verify?sha256=$REPORT_SHA256"
api "$INTEGRITY_BASE_URL/api/v1/certificates/$CERTIFICATE/download" -o certificate.json
integrity verify certificate.json trusted-keys.json report.txt
