"""The compared methods, one file each or for a few of a kind. A file defines METHOD or METHODS.

`../registry.py` lists the names. A full step is computed; a reused step takes its output from earlier full steps. A
control is a simple method for comparison. Candidate settings are tuned before they are scored; published settings,
which a paper or a project gives, are scored as they are.
"""
