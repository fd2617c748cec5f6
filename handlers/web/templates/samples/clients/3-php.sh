curl -sS --fail-with-body -O "$INTEGRITY_BASE_URL/developers/integrity.php"
