"""Rules that decide which steps are reused, written from the papers, for methods that have no code for diffusers."""
