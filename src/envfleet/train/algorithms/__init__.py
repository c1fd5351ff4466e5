"""The algorithms. Each is read top to bottom: its loss functions, then a class that acts and learns.

`registry` is the table of all algorithms, with their presets. `learner` says what the training loop needs of one, and
holds what A2C and PPO share. `returns` turns rewards and values into advantages. `off_policy` holds what SAC, TD3 and
DQN share; `replay`, `priorities` and `exploration` are their memory and their noise. Nothing is imported here: the
table can be read without torch.
"""
