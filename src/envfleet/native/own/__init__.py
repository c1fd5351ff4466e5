"""Environments of one's own on the native pool.

``environment`` is what all of them share, ``library`` those from shared libraries written against ``envfleet_env.h``
(whose structs are in ``abi``), ``compiled`` those written in Python over a NumPy record (``layout``), which numba
compiles (``numba_code``, ``numba_random``).
"""
