"""Decision rules, written from the papers, for methods without code for diffusers."""
