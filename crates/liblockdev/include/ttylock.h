/* AIX's names for the locks of serial devices: 0 when it is done, or else -1. */

#ifndef LFP_TTYLOCK_H
#define LFP_TTYLOCK_H

#include <lockdev.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the device; releases it; asks whether it is free; waits until it is free. */
int ttylock(char *device);
int ttyunlock(char *device);
int ttylocked(char *device);
int ttywait(char *device);

#ifdef __cplusplus
}
#endif

#endif
