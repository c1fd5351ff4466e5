"""What lies in a run's folder, and how it is read again.

`folder` knows the files, `checkpoint` and `weights` what is in them, `initial_weights` begins with those of another
run, `finding` finds the newest run, `locking` keeps others out, `trust` asks before a run's own code is imported, and
`memory` gives back what saving has freed.
"""
