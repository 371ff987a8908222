/* Calls that signal-safety(7) allows in signal handlers, and vfork(2) in the child, made for a lock and a port
   while the program is in malloc(3). Anything that this library allocates, or waits for, ends it here.

   usage: handlers handler|thread|vfork|limit PORT LOCK SECONDS OTHER-PORT
          handlers names [PORT]   # each call once, with names of all kinds, and says which one allocates */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static const char *port, *lock, *other_port, *named = "";
static __thread volatile sig_atomic_t in_handler __attribute__((tls_model("initial-exec")));
static volatile sig_atomic_t rounds, opened, locked, progress;
static pthread_t main_thread;
static struct itimerval next;

/* What comes here from a handler has entered the heap a second time. */
static void look(void)
{
    static const char text[] = "allocates in a handler ";
    if (!in_handler) return;
    if (write(1, text, sizeof text - 1) + write(1, named, strlen(named))) _exit(9);
}
void *malloc(size_t n) { look(); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { look(); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { look(); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { look(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { look(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { look(); return !(*p = __libc_memalign(a, n)); }
void free(void *p) { if (p) look(); __libc_free(p); }

static void fail(const char *what)
{
    in_handler = 0;
    dprintf(1, "%s: %s\n", what, strerror(errno));
    _exit(3);
}

static void use(int signal)
{
    static const struct itimerval never;
    int before = errno, fd;
    (void) signal;
    if (in_handler) return;
    in_handler = 1;
    /* Beside the other thread's signals, it would come in this handler, and another handler would follow at once. */
    setitimer(ITIMER_REAL, &never, 0);
    if ((fd = open(lock, O_CREAT | O_EXCL | O_WRONLY, 0644)) >= 0) {
        locked++;
        close(fd);
        if (unlink(lock) < 0) fail("unlink");
    } else fail("lock");
    if ((fd = open(port, O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0) {
        opened++;
        if (dup2(fd, 200) != 200) fail("dup2");
        close(fd);
        close(200);
    } else if (errno != EBUSY) fail("open");
    rounds++;
    in_handler = 0;
    /* One at a time, or on a busy machine the next comes before the program gets to do anything. */
    setitimer(ITIMER_REAL, &next, 0);
    errno = before;
}

static void timer(long microseconds)
{
    struct sigaction action = { .sa_handler = use, .sa_flags = SA_RESTART };
    next.it_value.tv_usec = microseconds;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &next, 0);
}

static void churn(unsigned round)
{
    static __thread void *kept[64];
    void **slot = &kept[round % 64];
    free(*slot);
    *slot = malloc(1 + round * 7919u % 40000);
    if (!*slot) fail("malloc");
    *(char *) *slot = 1;
    char *grown = realloc(*slot, 1 + round * 104729u % 90000);
    if (grown) *slot = grown;
}

static void *other(void *unused)
{
    (void) unused;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    for (;;) {
        const sig_atomic_t before = progress;
        for (unsigned round = 0; round < 200; round++) churn(round);
        /* As with the timer: a signal that waits for the end of each handler would be all that the program does. */
        if (progress != before) pthread_kill(main_thread, SIGALRM);
    }
}

/* What the library does not answer. */
static int is_locked(void)
{
    return syscall(SYS_faccessat, AT_FDCWD, lock, F_OK) == 0;
}

/* The child has the parent's memory; what it notes there must not become the parent's. */
static void vforked(void)
{
    int own = open(port, O_RDWR | O_NOCTTY | O_NONBLOCK), status;
    if (own < 0) fail("open");
    pid_t child = vfork();
    if (child == 0) {
        int again = open(port, O_RDWR | O_NOCTTY | O_NONBLOCK);
        if (again < 0) _exit(4);
        close(again);
        if (open(other_port, O_RDWR | O_NOCTTY | O_NONBLOCK) < 0) _exit(4);
        execl("/bin/true", "true", (char *) 0);
        _exit(5);
    }
    if (waitpid(child, &status, 0) != child || status) fail("the child");
    if (!is_locked()) fail("the child released the parent's port");
    close(own);
    if (is_locked()) fail("the child has taken the parent's note");
    rounds++, opened++, locked++;
}

/* Descriptors run out while the port is open. */
static void exhausted(void)
{
    struct rlimit few = { 64, 64 };
    int fd, port_fd, taken[64], count = 0;
    setrlimit(RLIMIT_NOFILE, &few);
    port_fd = open(port, O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (port_fd < 0) fail("open");
    while (count < 64 && (fd = open("/dev/null", O_RDONLY)) >= 0) taken[count++] = fd;
    if (errno != EMFILE) fail("not at the limit");
    /* No place is left afterwards to look into /proc from. */
    if (dup2(taken[0], port_fd) != port_fd) fail("dup2");
    /* Nor to tell the service: that is made up for when there is one. */
    close(taken[--count]);
    if (is_locked()) fail("it stays locked");
    while (count) close(taken[--count]);
    close(port_fd);
    rounds++, opened++, locked++;
}

static int with_names(const char *open_port)
{
    static const char *const names[] = {
        "missing", "/missing", "/tmp/program.c/x", "below/missing", "/root/x", "/etc/hostname",
        "/dev/null", "/dev/tty", "/dev/urandom", "/dev/missing", "/", ".", "", 0,
    };
    struct stat found;
    const int fd = open_port ? open(open_port, O_RDWR | O_NOCTTY) : 0;
    const int root = open("/", O_RDONLY | O_DIRECTORY);
    if (root < 0 || fd < 0) return perror("open"), 2;
    write(1, "begins\n", 7);
    in_handler = 1;
    for (int i = 0; names[i]; i++) {
        const char *name = named = names[i];
        close(open(name, O_RDONLY | O_NOCTTY));
        close(open(name, O_RDWR | O_NOCTTY));
        close(openat(AT_FDCWD, name, O_RDONLY | O_NOCTTY));
        close(openat(root, name, O_WRONLY | O_NOCTTY));
        stat(name, &found), lstat(name, &found), fstatat(root, name, &found, 0);
        access(name, R_OK), access(name, W_OK), faccessat(root, name, W_OK, 0);
        chmod(name, 0600), fchmodat(root, name, 0600, 0);
        chown(name, -1, -1), fchownat(root, name, -1, -1, 0);
        utime(name, 0), utimensat(root, name, 0, 0);
        link("missing", name), linkat(root, "missing", AT_FDCWD, name, 0);
        rename("missing", name), renameat(AT_FDCWD, "missing", root, name);
        unlink("/proc/1/stat"), unlinkat(root, "missing", 0);
    }
    named = "with descriptors";
    dup2(root, 50), dup2(51, 52), close(50), close(root), close(-1);
    in_handler = 0;
    return puts("done") < 0;
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "names")) return with_names(words[2]);
    if (count != 6) return 2;
    const char *mode = words[1];
    port = words[2], lock = words[3], other_port = words[5];
    main_thread = pthread_self();
    const time_t end = time(0) + atoi(words[4]);
    if (!strcmp(mode, "handler")) timer(1500);
    if (!strcmp(mode, "thread")) {
        pthread_t thread;
        timer(5000);
        if (pthread_create(&thread, 0, other, 0)) fail("thread");
    }
    for (unsigned round = 0; time(0) < end; round++) {
        if (!strcmp(mode, "vfork")) vforked();
        else if (!strcmp(mode, "limit")) exhausted();
        else churn(round), progress++;
    }
    signal(SIGALRM, SIG_IGN);
    in_handler = 0;
    if (!rounds || !opened || !locked) return dprintf(1, "nothing was done\n"), 6;
    dprintf(2, "%d rounds, %d opened, %d locked\n", (int) rounds, (int) opened, (int) locked);
    dprintf(1, "done\n");
    _exit(0);
}
