/* AIX's names for the locks of serial devices: 0 when it is done, or else -1. */

#ifndef LFP_TTYLOCK_H
#define LFP_TTYLOCK_H

#include <lockdev.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the device; releases it for its present holder; asks whether it is free; waits until it is free. */
int ttylock(char *device);
int ttyunlock(char *device);
int ttylocked(char *device);
int ttywait(char *device);

/* The same for the caller alone, as programs have it that were compiled to start lockdev(8): 0, 1 when
 * another process has the device, or a negative number of errno(3). */
int ttylock_helper(const char *device);
int ttyunlock_helper(const char *device);
int ttylocked_helper(const char *device);
int ttywait_helper(const char *device);

#ifdef __cplusplus
}
#endif

#endif
