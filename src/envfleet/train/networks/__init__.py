"""The networks: `encoders` turn observations of any space into features, `networks` are actors and critics on top.

`distributions` turn an actor's outputs into actions and their probabilities. `quick_policy` is the forward pass of a
small actor in NumPy.
"""
