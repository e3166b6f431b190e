"""What every test starts from, however and wherever the suite was started."""

import os
import signal

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What would change the output of the command line, or have each of its processes compile all modules again.
for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS"):
    os.environ.pop(name, None)
