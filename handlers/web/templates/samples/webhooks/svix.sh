export INTEGRITY_WEBHOOK_SECRET=$(jq -r .data.secret webhook.json)
node receiver.mjs svix.mjs
