/* The locks of serial devices. See lockdev(8) and the project's README. */

#ifndef LFP_LOCKDEV_H
#define LFP_LOCKDEV_H

#include <errno.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each gives 0 when it is done, the process that has the device, or -1 with errno. A device is
 * /dev/NAME or NAME, and /dev/null is none. ECONNREFUSED: no service is there, and nothing is locked. */

/* Who has the device; 0: nobody. */
pid_t dev_testlock(const char *device);

/* Takes the device for this process, which may have it already. */
pid_t dev_lock(const char *device);

/* Passes the lock of another process of this user, or with 0 of its present holder, to this process. If nobody has
 * the device, this process takes it. */
pid_t dev_relock(const char *device, pid_t old);

/* Releases the device for a process of this user, or with 0 for its present holder. */
pid_t dev_unlock(const char *device, pid_t pid);

/* The process that gets the locks: the caller, or the process that dev_setpid has named. dev_setpid returns the
 * process named before; 0 means the caller again. */
pid_t dev_getpid(void);
pid_t dev_setpid(pid_t pid);

/* Shows each step on standard error. */
void liblockdev_incr_debug(void);
void liblockdev_reset_debug(void);

#ifdef __cplusplus
}
#endif

#endif
