"""Loading, generating and saving videos, one or many."""
