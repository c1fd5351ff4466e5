"""Sweeps: many trainings of one configuration with other settings, to find the best.

`space` says what is searched, `folder` what a sweep leaves on disk, `study` talks to Optuna, `trial` trains one trial,
`workers` trains several at once, `sweep` is the whole, `results` and `importance` say what came out.
"""
