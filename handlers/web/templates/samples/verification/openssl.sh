jq -r '.timestampAuthorities[0].certificates[0]' trusted-keys.json | base64 -d > root.der
openssl x509 -inform DER -in root.der -out root.pem
jq -j '.timestamps[0].checkpoint' stamped.json > note
jq -r '.timestamps[0].tokens[0].token' stamped.json | base64 -d > token
openssl ts -verify -data note -token_in -in token -CAfile root.pem
