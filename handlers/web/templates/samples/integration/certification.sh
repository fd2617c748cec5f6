api() { curl -sS -H "Authorization: Bearer $INTEGRITY_API_KEY" "$@"; }
api {base}/api/v1/artifacts -H 'Idempotency-Key: 7c0f9a52' -F 'metadata={"title":"Annual report"};type=application/json' -F 'file=@report.pdf'
api {base}/api/v1/artifacts/ART/reviews -F 'metadata={"versionId":"VER","outcome":"accepted","statement":"Read in full.","acceptResponsibility":true};type=application/json' -F 'file=@report.pdf'
api {base}/api/v1/versions/VER/approve --json '{"statement":"Approved for publication.","acceptResponsibility":true}'
api {base}/api/v1/versions/VER/certificates --json '{"publicationAuthorized":true,"publicFields":["title"]}'
curl -sS "{base}/api/v1/certificates/PUBLIC_ID/verify?sha256=$(sha256sum < report.pdf | cut -c1-64)"
api {base}/api/v1/certificates/PUBLIC_ID/download -o certificate.json
integrity verify certificate.json trusted-keys.json report.pdf
