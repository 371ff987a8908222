// Opens a serial port through RXTX, says "OPENED", and holds it until its input ends.
// Exit code 4: there is no such port, which is what RXTX says of a locked one. 5: in use.
import gnu.io.CommPort;
import gnu.io.CommPortIdentifier;
import gnu.io.NoSuchPortException;
import gnu.io.PortInUseException;

public class HoldPort {
    public static void main(String[] arguments) throws Exception {
        // RXTX would otherwise look at every port of the machine, and lock each for a moment.
        System.setProperty("gnu.io.rxtx.SerialPorts", arguments[0]);
        try {
            CommPortIdentifier name = CommPortIdentifier.getPortIdentifier(arguments[0]);
            CommPort port = name.open("HoldPort", 0);
            System.out.println("OPENED");
            while (System.in.read() >= 0) {
                // Until the end of the input.
            }
            port.close();
            System.out.println("CLOSED");
            System.exit(0);
        } catch (NoSuchPortException e) {
            System.out.println("NO SUCH PORT");
            System.exit(4);
        } catch (PortInUseException e) {
            System.out.println("PORT IN USE by " + e.currentOwner);
            System.exit(5);
        }
    }
}
