"""The live page: `broadcast` is the training's side, `runs` reads folders, `server` serves the page to one person.

Both sides meet in the run's folder, below `.live`. The server says there that somebody watches, and what is to be done;
the training writes what it does now, for as long as somebody watches.
"""
