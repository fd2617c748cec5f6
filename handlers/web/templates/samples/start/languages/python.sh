python3 first.py
