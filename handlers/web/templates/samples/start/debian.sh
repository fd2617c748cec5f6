sudo apt-get install -y curl jq python3-cryptography
