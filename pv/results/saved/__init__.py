"""Reports that were saved as JSON: read, merged, and compared with those of a base."""
