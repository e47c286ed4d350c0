"""Profiles: what a calibration measured on one model, and how it becomes settings."""
