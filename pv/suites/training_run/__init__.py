"""Claims about a training run that was observed: what holds for every correct script, judged from its trace.

run       reads the traces of all ranks into processes and windows
claims    the claims, one file a topic; each decides whether a fault is falsified or a hint
claim     collects what a claim reports, and merges several findings
attacks   draws traces, and edits them so that only one claim rejects them
"""
