/* A program that links liblockdev as its header documents it. Reads calls from its input, one a
 * line, and prints what each gives: CALL RESULT ERRNO. */

#include <lockdev.h>
#include <ttylock.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char line[64], call[32];
    char *device = argc > 1 ? argv[1] : NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("pid %d\n", (int)dev_getpid());
    while (fgets(line, sizeof line, stdin) != NULL) {
        int pid = 0;
        long result = -2;

        if (sscanf(line, "%31s %d", call, &pid) < 1)
            continue;
        errno = 0;
        if (strcmp(call, "test") == 0)
            result = dev_testlock(device);
        else if (strcmp(call, "lock") == 0)
            result = dev_lock(device);
        else if (strcmp(call, "relock") == 0)
            result = dev_relock(device, pid);
        else if (strcmp(call, "unlock") == 0)
            result = dev_unlock(device, pid);
        else if (strcmp(call, "setpid") == 0)
            result = dev_setpid(pid);
        else if (strcmp(call, "null") == 0)
            result = dev_lock(NULL);
        else if (strcmp(call, "ttylock") == 0)
            result = ttylock(device);
        else if (strcmp(call, "ttylocked") == 0)
            result = ttylocked(device);
        else if (strcmp(call, "ttyunlock") == 0)
            result = ttyunlock(device);
        else if (strcmp(call, "ttywait") == 0)
            result = ttywait(device);
        else if (strcmp(call, "ttylock_helper") == 0)
            result = ttylock_helper(device);
        else if (strcmp(call, "ttylocked_helper") == 0)
            result = ttylocked_helper(device);
        else if (strcmp(call, "ttyunlock_helper") == 0)
            result = ttyunlock_helper(device);
        else if (strcmp(call, "ttywait_helper") == 0)
            result = ttywait_helper(device);
        else if (strcmp(call, "debug") == 0) {
            liblockdev_incr_debug();
            result = 0;
        } else if (strcmp(call, "quiet") == 0) {
            liblockdev_reset_debug();
            result = 0;
        }
        printf("%s %ld %d\n", call, result, result == -1 ? errno : 0);
    }
    return 0;
}
