"""Worker processes that try falsifiers: forked from a server, monitored, and killed with all their descendants."""
