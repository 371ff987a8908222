/* The system calls that lfpd makes in one session (greet, lock, unlock, quit), and nothing else:
 * no parsing, no judging, no runtime. What benches/sessions.rs measures beside greeter.c, to tell
 * what the calls cost from what lfpd adds to them. Linked statically.
 *
 * The list is that of `strace -f` on a second session; no answer is looked at. */
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SAY(text) send(1, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL)
#define DRAFT "lfpd.1.0123456789abcdef.tmp"
#define LOCK "LCK..ttyW0"

static struct stat seen;
static char bytes[8192];
static int own, others[4];

static int directory(const char *path)
{
	int file = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (file >= 0)
		fstat(file, &seen);
	return file;
}

/* Descriptors 0 to 2 made safe, the peer looked at, the greeting said. */
static void welcome(void)
{
	int one = 1, file;
	socklen_t size = sizeof one;
	struct utsname host;
	struct sockaddr_in near, far;
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 socket;
	} question = {
		.header = { sizeof question, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0 },
		.socket = { .sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP,
			    .idiag_states = -1, .id = { .idiag_cookie = { -1, -1 } } },
	};

	umask(022);
	for (file = 0; file < 3; file++)
		fstat(file, &seen);
	file = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(file, 2);
	close(file);
	getsockopt(0, SOL_SOCKET, SO_TYPE, &file, &size);
	getsockopt(0, SOL_SOCKET, SO_ACCEPTCONN, &file, &size);
	uname(&host);
	setsockopt(0, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
	size = sizeof far;
	getpeername(0, (struct sockaddr *)&far, &size);
	size = sizeof near;
	getsockname(0, (struct sockaddr *)&near, &size);
	question.socket.id.idiag_sport = far.sin_port;
	question.socket.id.idiag_dport = near.sin_port;
	question.socket.id.idiag_src[0] = far.sin_addr.s_addr;
	question.socket.id.idiag_dst[0] = near.sin_addr.s_addr;
	file = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	send(file, &question, sizeof question, 0);
	recv(file, bytes, 1024, MSG_DONTWAIT);
	SAY("220 testbed Lock File Server (Version rxtx-1.5-9) ready\r\n");
}

/* The lock directories and /dev, as far as the note of an earlier session leaves them open. */
static void prepare(void)
{
	static const char *const searched[] = { "/etc/apcupsd", "/var/run", "/var/tmp", "/tmp" };
	int number;

	readlinkat(directory("/run/lfpd"), "seen", bytes, 4096);
	own = directory("/var/lock");
	stat("/var/spool", &seen);
	stat("/usr", &seen);
	stat("/etc", &seen);
	close(directory("/var/lock"));
	close(directory("/run/lock"));
	directory("/var/lock/lockdev");
	stat("/var/lock", &seen);
	directory("/var/lock/uucp");
	directory("/var/lock/modem");
	for (number = 0; number < 4; number++)
		others[number] = directory(searched[number]);
	for (number = 0; number < 4; number++)
		fstat(others[number], &seen);
	stat("/dev", &seen);
}

/* What is asked of every request: the process, the node, its links, the other names. */
static void look(void)
{
	static const char *const names[] = {
		"lk..ttyW0", "LK.ttyW0", "LK.000.004.064", "LCK.004.064", "LCK.C.004.064",
	};
	int number;

	kill(1, 0);
	kill(1, 0);
	lstat("/dev/ttyW0", &seen);
	stat("/dev", &seen);
	close(open("/run/udev/data/c4:64", O_RDONLY | O_CLOEXEC));
	for (number = 0; number < 5; number++)
		fstatat(own, names[number], &seen, AT_SYMLINK_NOFOLLOW);
	for (number = 0; number < 4; number++)
		fstat(others[number], &seen);
}

static int take(void)
{
	int file = open("/proc/locks", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(file, bytes, sizeof bytes);

	close(file);
	look();
	file = openat(own, DRAFT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	length = pwrite(file, "         1\n", 11, 0);
	fstat(file, &seen);
	renameat2(own, DRAFT, own, LOCK, RENAME_NOREPLACE);
	fstatat(own, LOCK, &seen, AT_SYMLINK_NOFOLLOW);
	close(file);
	return length == 11;
}

static int give_back(void)
{
	int file;
	ssize_t length;

	look();
	fstatat(own, LOCK, &seen, AT_SYMLINK_NOFOLLOW);
	file = openat(own, LOCK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	fstat(file, &seen);
	length = pread(file, bytes, 11, 0);
	kill(1, 0);
	flock(file, LOCK_EX | LOCK_NB);
	fstatat(own, LOCK, &seen, AT_SYMLINK_NOFOLLOW);
	length = pread(file, bytes, 11, 0);
	return unlinkat(own, LOCK, 0) == 0 && length == 11;
}

int main(void)
{
	struct pollfd client = { .fd = 0, .events = POLLIN };
	char line[512];

	welcome();
	prepare();
	while (poll(&client, 1, 300000) > 0 && read(0, line, sizeof line) > 0) {
		if (line[0] == 'q')
			return SAY("221 Thank you for using the Lock File service on testbed\r\n") < 0;
		if (line[0] == 'l' ? take() : give_back())
			SAY("200 Command okay.\r\n");
		else
			SAY("550 : Permission denied.\r\n");
	}
	return 0;
}
