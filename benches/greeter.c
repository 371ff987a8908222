/* The smallest program that greets and answers: the floor that benches/sessions.rs measures lfpd
 * against. It locks nothing, checks nobody and reads one command per read. Linked statically. */
#include <unistd.h>

#define SAY(text) write(1, text, sizeof text - 1)

int main(void)
{
	char line[512];

	if (SAY("220 testbed Lock File Server (Version rxtx-1.5-9) ready\r\n") < 0)
		return 1;
	while (read(0, line, sizeof line) > 0) {
		if (line[0] == 'q')
			return SAY("221 Thank you for using the Lock File service on testbed\r\n") < 0;
		if (SAY("200 Command okay.\r\n") < 0)
			return 1;
	}
	return 0;
}
