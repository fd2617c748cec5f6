python3 -m venv --system-site-packages .venv
. .venv/bin/activate
python3 -m pip install cryptography
