"""Opens a serial port through serialx as it comes, says "OPENED", holds it until its input ends."""

import sys

import serialx

port = serialx.serial_for_url(sys.argv[1], baudrate=9600)
try:
    port.open()
except OSError as error:
    print(error, flush=True)
    sys.exit(1)
print("OPENED", flush=True)
sys.stdin.read()
port.close()
