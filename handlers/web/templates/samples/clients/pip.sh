python3 -m pip install httpx
