mkdir -p files && cp document.txt files/
integrity manifest create files -o manifest.json
integrity register manifest.json --company "$INTEGRITY_COMPANY" \
  --source archive --document "files-$(date +%s)-$$" --version 1
integrity manifest verify files manifest.json
