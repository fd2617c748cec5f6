INTEGRITY_API_KEY=$ADMIN_KEY integrity webhook replay "$WEBHOOK_ID" --from 1
