"""The suite `training-loop`: claims that hold for every correct training loop, and what an adapter needs.

job          the interface of an adapter: the job, the report, the features
adapters     adapters of trainers that exist, chosen by the class of a subject
usual_names  patterns of usual names of methods and settings
features     the declared features of an adapter, and the jobs that they allow

bench        runs jobs for the claims, and caches the runs
run          runs one job, records its steps, and limits its time
processes    runs jobs in ranks, or in a fork that is killed inside a save
probe        the model that every trainer trains; `network` for trainers that create their own
cases        the examples and the jobs

claims       the claims, one file a topic, with the known causes of failures; `checks` writes them: "it is ..."
oracle       loss and gradient in float64
diagnosis    how a run differs from a run that must have the same steps, such as the uninterrupted run
mistakes     known mistakes that explain a wrong gradient

loop         a correct loop, for which all claims hold; `faults` has its mutants
"""
