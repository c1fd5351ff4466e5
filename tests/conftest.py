"""What all tests share."""

from __future__ import annotations

import signal

# A shell that runs the tests in the background has Ctrl-C ignored, and every process started from here would inherit
# that: the tests of interruptions would wait for something that cannot happen.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
