"""Calibration: record generations, rank proxies, fit errors, plan speedups, verify, and build the profile."""
