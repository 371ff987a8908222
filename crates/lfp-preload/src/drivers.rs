//! Which device numbers are serial ports, or surely none. Pure.

/// The majors of serial ports that are the same on every Linux (its `devices.txt`): modems on
/// USB, USB converters, and the ports of small machines.
const MAJORS: [u32; 3] = [166, 188, 204];

/// The majors of what programs open most and what is never a serial port (the same source): memory and `/dev/null`, the
/// terminal of the process, input, sound, pseudo-terminals, graphics.
const OTHER_MAJORS: [u32; 6] = [1, 5, 13, 116, 136, 226];

/// The first minor of `/dev/ttyS0`; those of the same major below are consoles.
const TTY_MAJOR: u32 = 4;
const FIRST_PORT: u32 = 64;

/// Whether it is a serial port by its number alone.
pub(crate) fn is_port(major: u32, minor: u32) -> bool {
    MAJORS.contains(&major) || major == TTY_MAJOR && minor >= FIRST_PORT
}

/// Whether it is no serial port, by its number alone: the list of drivers takes longer than to open the device.
pub(crate) fn is_other(major: u32) -> bool {
    OTHER_MAJORS.contains(&major)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::console(4, 1, false)]
    #[case::last_console(4, 63, false)]
    #[case::first_port(4, 64, true)]
    #[case::usb(188, 0, true)]
    #[case::modem(166, 3, true)]
    #[case::null(1, 3, false)]
    #[case::terminal(5, 0, false)]
    #[case::pseudo_terminal(136, 0, false)]
    #[case::unknown(240, 0, false)]
    fn ports_are_known_by_their_major_number(
        #[case] major: u32,
        #[case] minor: u32,
        #[case] expected: bool,
    ) {
        assert_eq!(is_port(major, minor), expected);
    }
}
