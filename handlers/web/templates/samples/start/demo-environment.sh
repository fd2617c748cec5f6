DEMO=${INTEGRITY_DATA_DIR:-data}/demo.json
export INTEGRITY_BASE_URL=$(jq -r .baseUrl "$DEMO")
export INTEGRITY_API_KEY=$(jq -r .keys.worker "$DEMO")
export INTEGRITY_COMPANY=$(jq -r .companyReference "$DEMO")
export ADMIN_KEY=$(jq -r .keys.admin "$DEMO")
