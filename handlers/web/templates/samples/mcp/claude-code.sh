claude mcp add --transport http --scope user \
  --header "Authorization: Bearer $INTEGRITY_API_KEY" \
  integrity {base}/api/v1/integrity/mcp
