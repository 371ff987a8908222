"""Ends the exclusive mode (TIOCEXCL) of a port.

The last close of a serial port does that; of a pseudo-terminal it does not while the far end
is open. So a killed program would leave it behind here, and only here."""

import fcntl
import os
import sys
import termios

port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
fcntl.ioctl(port, termios.TIOCNXCL)
