"""Who goes next: jobs, the queue, `plan` and `settle`.

Pure: `plan` only reads, `settle` and the verbs of `Schedule` are the only writers, time is an argument.
"""
