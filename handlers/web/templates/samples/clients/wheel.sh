python3 -m pip install "$INTEGRITY_BASE_URL/developers/integrity_client-{version}-py3-none-any.whl"
