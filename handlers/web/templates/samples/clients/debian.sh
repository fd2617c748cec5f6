sudo apt-get install -y python3-httpx
