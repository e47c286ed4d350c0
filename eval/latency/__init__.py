"""Latency of Wan2.1 shapes with random weights: how long a full and a reused step take with each method."""
