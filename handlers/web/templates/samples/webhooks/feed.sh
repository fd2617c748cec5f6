python3 feed.py
