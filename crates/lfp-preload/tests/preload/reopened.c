/* Ports that are opened by other calls than open(2). Says after each step whether the port is locked.

   usage: reopened PORT LOCK */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *lock;

/* What the library does not answer. */
static void say(const char *step, int is_done)
{
    const int is_locked = syscall(SYS_faccessat, AT_FDCWD, lock, F_OK) == 0;
    printf("%s %s, %s\n", step, is_done ? "done" : "failed", is_locked ? "locked" : "free");
    fflush(stdout);
}

int main(int count, char **words)
{
    if (count != 3) return 2;
    const char *port = words[1];
    lock = words[2];
    FILE *stream = fopen("/dev/null", "r");
    say("nothing", stream != 0);
    stream = freopen(port, "r+", stream);
    say("freopen", stream != 0);
    stream = freopen(port, "r+", stream);
    say("freopen again", stream != 0);
    stream = freopen("/dev/null", "r", stream);
    say("freopen of another file", stream != 0);

    posix_spawn_file_actions_t actions;
    char *command[] = { "sh", "-c", "readlink /proc/self/fd/9", 0 };
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 9, port, O_RDWR | O_NOCTTY | O_NONBLOCK, 0);
    int is_done = posix_spawn(&child, "/bin/sh", &actions, 0, command, environ) == 0;
    is_done = is_done && waitpid(child, &status, 0) == child && status == 0;
    say("addopen", is_done);
    return 0;
}
