"""Read contracts: from a YAML file to frozen dataclasses."""
