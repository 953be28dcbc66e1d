"""Read contracts: from a YAML file to frozen dataclasses.

load          files -> contracts and problems: `strict_yaml` parses, `check` applies the schema, `build` converts
model         the classes of a contract
schema        the JSON Schemas; `rules` has the explanation of every code, `codes` the codes themselves
sharing       shared domains, constants and equations
suites        joins the claims of a suite and a contract
existing      contracts of the provable-contracts format
harness_bounds   bounds of a harness
plugins       engines, suites and formats of other packages
finding, wording, reference   problems with their location; texts; the reference page of the format
"""
