"""The compared methods.

Each `method(...)` in a file here declares one (`method.py`), and `method_registry.py` finds it.
"""
