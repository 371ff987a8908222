//! File-based semaphores for programs and shell scripts.
