"""Opens a serial port through pyserial with exclusive=True, says "OPENED", holds it until its
input ends."""

import sys

import serial

try:
    port = serial.Serial(sys.argv[1], exclusive=True)
except serial.SerialException as error:
    print(error, flush=True)
    sys.exit(1)
print("OPENED", flush=True)
sys.stdin.read()
port.close()
