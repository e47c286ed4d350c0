"""A surrogate of a video model: independent directions with exact denoisers, fitted to a measured curvature."""
