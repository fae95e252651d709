"""`python -m timebound` is the command `timebound`."""

from timebound.cli import main

main()
