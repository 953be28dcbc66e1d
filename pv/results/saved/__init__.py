"""Read, write and merge reports as JSON, and compare a report with its base."""
