"""Opens a serial port through QtSerialPort, says "OPENED", holds it until its input ends."""

import sys

from PyQt5.QtCore import QIODevice
from PyQt5.QtSerialPort import QSerialPort

port = QSerialPort()
port.setPortName(sys.argv[1])
if not port.open(QIODevice.ReadWrite):
    print(port.errorString(), flush=True)
    sys.exit(1)
print("OPENED", flush=True)
sys.stdin.read()
port.close()
