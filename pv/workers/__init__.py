"""Processes that try falsifiers: started from a fork server, watched, ended with everything that they started."""
