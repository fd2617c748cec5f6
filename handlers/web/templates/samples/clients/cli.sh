integrity register document.txt --company "$INTEGRITY_COMPANY" \
  --source quick-start --document "command-$(date +%s)-$$" --version 1
