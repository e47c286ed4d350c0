"""The figures of wan-tiny's page: what the model makes, what its blocks see, and how it ranks published methods."""
