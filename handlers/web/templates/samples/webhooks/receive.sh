SERVICE=$(jq -r '.data.evidenceUrl | split("/api/")[0]' record.json)
curl -sS --fail-with-body -O "$SERVICE/developers/integrity_webhook.py"
export INTEGRITY_WEBHOOK_SECRET=$(jq -r .data.secret webhook.json)
python3 integrity_webhook.py events.db --listen 127.0.0.1:8090
