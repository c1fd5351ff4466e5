"""A training run: `run` has `train` and `resume`, `training` is the loop's state.

`folder` says what lies where in a run's folder, `checkpoint` and `weights` what is saved, `locking` who may train there
and `trust` whose runs may import modules. `metrics` gathers and writes the logged numbers, `loggers` sends them to
viewers, `reporting` shows progress to people.
"""
