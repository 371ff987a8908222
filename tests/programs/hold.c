/* Opens a serial port as old programs do, without any lock, and holds it until its input ends. */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char byte;
    int port = open(argv[argc - 1], O_RDWR | O_NOCTTY | O_NONBLOCK);

    if (port < 0) {
        perror(argv[argc - 1]);
        return 1;
    }
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
