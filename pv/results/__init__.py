"""Results of trials, recorded evidence, and the verdicts that follow from them.

evidence      everything that is known about a contract: trials, recorded results, mutation score, traces of runs
outcome       evidence -> the outcome of a claim
verdict       outcomes -> the verdict of a contract, the exit code of a report
requirements  the reasons, in words, why a contract does not pass; `verdict` decides whether it passes
reuse         cached trials: the cache, their dependencies, their environment
store         recorded evidence: committed files, and whether they are still valid
saved         reports as JSON: written, read, merged, compared with a base
definitions   the definitions of a contract as data, compared with an older version
comparison, dry_run, explained   the results of the commands `compare`, `validate --dry-run` and `explain`
steps         optimizer steps of an observed script
own_code      the files of pv itself that a cached or recorded result depends on
worktree      the commit of a git working tree, digests of its files and of its uncommitted changes
"""
