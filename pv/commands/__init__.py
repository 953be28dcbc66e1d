"""The functions behind the command line and the library."""
