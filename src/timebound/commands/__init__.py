"""Groups of commands of the command line; each module is light and imports its work when it runs."""
