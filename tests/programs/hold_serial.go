// Opens the port that is named through a serial library of Go, says "OPENED", and keeps it until its input ends.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/albenik/go-serial"
)

func main() {
	port, err := serial.Open(os.Args[1], serial.WithBaudrate(9600))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("OPENED")
	io.Copy(io.Discard, os.Stdin)
	port.Close()
}
