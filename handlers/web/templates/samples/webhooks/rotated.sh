export INTEGRITY_WEBHOOK_SECRET=$(jq -rs 'map(.data.secret) | join(" ")' rotated.json webhook.json)
python3 integrity_webhook.py events.db --listen 127.0.0.1:8090
