"""From a YAML file to frozen data: what the author of a contract claims."""
