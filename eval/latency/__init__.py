"""Latency of Wan2.1 shapes with random weights: time of the steps that each method computes in full, or reuses."""
