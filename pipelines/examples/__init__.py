"""Examples of use, tested."""
