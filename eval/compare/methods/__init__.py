"""The compared methods. Each file defines METHOD or METHODS; `../registry.py` lists their names."""
