//! RXTX, a library for serial ports in Java, which was never changed, and a program that uses it
//! (`tests/programs/HoldPort.java`).

const CLASSES: &str = "/usr/share/java/RXTXcomm.jar";

/// Compiles the program into `/tmp` of a sandbox.
pub const COMPILE: [&str; 6] =
    ["javac", "-cp", CLASSES, "-d", "/tmp", "/run/test/programs/HoldPort.java"];

/// Holds the port `{dev}` until the end of its input.
pub const HOLD: [&str; 7] = [
    "java",
    "-Xint",
    "-Djava.library.path=/usr/lib/jni",
    "-cp",
    "/usr/share/java/RXTXcomm.jar:/tmp",
    "HoldPort",
    "{dev}",
];
