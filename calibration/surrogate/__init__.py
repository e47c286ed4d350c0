"""A surrogate of a video model: independent scalar directions with exact denoisers, fitted to a measured curvature."""
