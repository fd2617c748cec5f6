SERVICE=$(jq -r '.data.evidenceUrl | split("/api/")[0]' record.json)
integrity monitor "$SERVICE" --trusted-keys trusted-keys.json --state log.json --follow --json
