claude mcp add --transport http --scope user \
  --header "Authorization: Bearer $INTEGRITY_API_KEY" \
  integrity "$INTEGRITY_BASE_URL/api/v1/integrity/mcp"
