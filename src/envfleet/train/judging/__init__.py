"""How good an agent is: `evaluation` plays episodes and `scores` says what they came to.

`play_setup` says where an agent plays. `plots` draws learning curves, which `curves` computes and `figures` lays out.
`inline` shows pictures and tables in notebooks.
"""
