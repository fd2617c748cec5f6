INTEGRITY_API_KEY=$ADMIN_KEY integrity webhook list
