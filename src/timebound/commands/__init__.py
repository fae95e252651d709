"""The commands, one file each and named like it; shared parts begin with `_`.

A module imports its work when the command runs, so that no command pays for the others.
"""
