integrity verify --require-timestamp evidence.json trusted-keys.json document.pdf
python3 verify_integrity.py --require-timestamp evidence.json trusted-keys.json document.pdf

jq -j '.timestamps[0].checkpoint' evidence.json > note
jq -r '.timestamps[0].tokens[0].token' evidence.json | base64 -d > token
openssl ts -verify -data note -token_in -in token -CAfile root.pem
