"""Training loops of other libraries, one module per library, for adapters.py.

Each module is imported where its library is, and has ``BASELINE``, ``SIDES`` and ``LOOPS``: what the others are
compared with, the vector environments by name, and what is done with one, by name.
"""
