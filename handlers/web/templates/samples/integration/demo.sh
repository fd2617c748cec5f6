integrity origin-demo --company "$INTEGRITY_COMPANY" --documents 20 \
  --interval 1s --data-dir "origin-$INTEGRITY_COMPANY"
