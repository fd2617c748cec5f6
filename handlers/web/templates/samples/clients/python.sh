python3 register.py
