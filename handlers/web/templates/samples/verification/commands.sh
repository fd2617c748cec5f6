python3 verify_integrity.py evidence.json trusted-keys.json document.txt
integrity verify evidence.json trusted-keys.json document.txt
