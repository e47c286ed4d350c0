"""One file a method. Each defines METHOD or METHODS; `../registry.py` lists them."""
