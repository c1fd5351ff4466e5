"""A training run: `run` has `train` and `resume`, `training` is the loop's state.

`journal` remembers the actions that a resumed run repeats, `evaluating` evaluates during the training, `training_envs`
is what callbacks see of the environments. `metrics` gathers and writes the logged numbers, `loggers` sends them to
viewers; `reporting`, `notebook` and `progress_line` show progress to people.
"""
