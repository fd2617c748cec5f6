export INTEGRITY_BASE_URL=$(jq -r .baseUrl data/demo.json)
export INTEGRITY_API_KEY=$(jq -r .keys.worker data/demo.json)
export INTEGRITY_COMPANY=$(jq -r .companyReference data/demo.json)
export ADMIN_KEY=$(jq -r .keys.admin data/demo.json)
