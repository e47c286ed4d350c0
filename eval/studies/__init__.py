"""Why the method is as it is: measurements on wan-tiny whose figures stand in the READMEs.

Not part of an installed package.
"""
