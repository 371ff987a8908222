// Opens the port that is named through Node's serial library, says "OPENED", and keeps it until its
// input ends.
const { SerialPort } = require("/run/test/node_modules/serialport");

const port = new SerialPort({ path: process.argv[2], baudRate: 9600 }, (error) => {
  if (error) {
    console.log(error.message);
    process.exit(1);
  }
  console.log("OPENED");
});
process.stdin.on("end", () => port.close()).resume();
