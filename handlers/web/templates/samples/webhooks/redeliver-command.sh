INTEGRITY_API_KEY=$ADMIN_KEY integrity webhook redeliver "$DELIVERY_ID"
