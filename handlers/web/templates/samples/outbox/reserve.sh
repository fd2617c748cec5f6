integrity reserve --quiet --timeout 2s --company "$INTEGRITY_COMPANY" --source billing --document inv-1 --version 1
