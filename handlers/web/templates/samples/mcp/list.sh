curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/mcp" \
  -H "Authorization: Bearer $INTEGRITY_API_KEY" \
  -H "Content-Type: application/json" \
  -H "Accept: application/json, text/event-stream" \
  -H "MCP-Protocol-Version: 2025-11-25" \
  -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
