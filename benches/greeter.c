/* The smallest programs that greet and answer: what benches/sessions.rs measures lfpd against.
 * They check nobody and read one command per read. Linked statically.
 *
 * Without LOCKS: locks nothing. With -DLOCKS: does for each lock and unlock the few steps that the
 * locking of a free device cannot do without: looks who holds a flock, makes a complete file, and
 * removes it. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define SAY(text) write(1, text, sizeof text - 1)

#ifdef LOCKS
#define LOCK "/run/lock/LCK..ttyW0"
#define DRAFT "/run/lock/draft.tmp"

static int failed(char command)
{
	static char locks[16384];
	int file;

	if (command == 'u')
		return unlink(LOCK);
	if ((file = open("/proc/locks", O_RDONLY)) < 0 || read(file, locks, sizeof locks) < 0)
		return 1;
	close(file);
	file = open(DRAFT, O_WRONLY | O_CREAT | O_EXCL, 0444);
	if (file < 0 || write(file, "         1\n", 11) != 11)
		return 1;
	close(file);
	return renameat2(AT_FDCWD, DRAFT, AT_FDCWD, LOCK, RENAME_NOREPLACE);
}
#else
#define failed(command) 0
#endif

int main(void)
{
	char line[512];

	if (SAY("220 testbed Lock File Server (Version rxtx-1.5-9) ready\r\n") < 0)
		return 1;
	while (read(0, line, sizeof line) > 0) {
		if (line[0] == 'q')
			return SAY("221 Thank you for using the Lock File service on testbed\r\n") < 0;
		if (failed(line[0]))
			return SAY("550 : Permission denied.\r\n") < 0;
		if (SAY("200 Command okay.\r\n") < 0)
			return 1;
	}
	return 0;
}
