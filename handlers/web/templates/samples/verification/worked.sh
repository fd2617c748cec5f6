curl -sS --fail-with-body -O "$INTEGRITY_BASE_URL/schemas/verification-vectors.json"
jq -j '.vectors[] | select(.name == "inclusion").receipt' \
  verification-vectors.json > example-evidence.json
jq -j '.trustedKeys.standard' verification-vectors.json > example-keys.json
python3 worked.py
python3 verify_integrity.py example-evidence.json example-keys.json
