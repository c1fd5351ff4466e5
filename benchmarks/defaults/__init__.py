"""Do the settings that envfleet comes with suit environments they were not chosen for?

environments  two small ones of our own        trials   what is trained, with which settings
results       what came of it, as a file       report   the same as a table, and who is better
"""
