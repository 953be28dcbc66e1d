"""The plan of a run: the order of its events, and values that change over its steps.

schedule   the order of events and batches; the steps that are logged, evaluated and saved
rates      the learning rate of a step
objective  temperature and loss weights of a step
"""
