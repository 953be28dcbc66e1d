"""The functions behind the command line and the library.

validate, compare, mutate, doctor, dry_run, new   one command each
explain        `pv explain`, and `pv why`: is the stored result of a claim reused?
plan           which claims, devices and shards a validation has
naming         resolves names of contracts, claims, suites and subjects
conformance    `pv check ADAPTER`; `declarations` reads what the adapter leaves out
observed       `pv check -- COMMAND`; `resumed` for `--cut` and `--resume`
new_adapter, function_under_contract   what `pv new` reads from existing code
base_report    a saved report, or a commit, to compare with
report_cache   reports of earlier validations of unchanged files
counterexamples, terminal   shared by commands
"""
