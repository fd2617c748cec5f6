python3 insert.py
