"""The compared methods: each `method(...)` in a file here declares one (`method.py`), and `registry.py` finds it."""
