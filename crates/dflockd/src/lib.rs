//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
