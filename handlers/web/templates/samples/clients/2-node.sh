npm install "$INTEGRITY_BASE_URL/developers/integrity-client-0.2.0.tgz"
