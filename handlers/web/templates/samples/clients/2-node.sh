npm install "$INTEGRITY_BASE_URL/developers/integrity-client-{version}.tgz"
