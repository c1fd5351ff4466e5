"""Episodes to watch: a film, a still picture, a window.

`showcase` and `window` are what users call. `stage` plays the episodes, `camera` looks at them, `canvas` and `frames`
draw the pictures, `video` and `stills` write them into files.
"""
