integrity monitor {base} --trusted-keys trusted-keys.json --state log.json --follow --json
