"""Takes, renews and releases by the client that openapi-python-client makes of the server's own document."""

import sys

from generated import Client
from generated.api.locks import acquire_lock, enqueue_lock, release_lock, renew_lock, show_lock, wait_lock
from generated.api.semaphores import acquire_semaphore
from generated.api.server import get_health
from generated.api.sessions import end_session, open_session, ping_session
from generated.models import (
    Acquire, AcquireLockSession, AcquireSemaphore, Enqueue, Error, Release, ReleaseLockSession, Renew, Wait,
)

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
session, other = (open_session.sync(client=client).session_id for _ in range(2))


def both(call, *words, by=session, **more):
    """The status and the parsed answer, as this session."""
    answer = call.sync_detailed(*words, client=client, x_dflockd_session=by, **more)
    return answer.status_code.value, answer.parsed


status, lock = both(acquire_lock, "a/b", body=Acquire(acquire_timeout_s=0, lease_ttl_s=60))
assert (status, lock.status, lock.lease_ttl_s) == (200, "ok", 60), lock
assert int(lock.fence) == int(lock.token[:16], 16), lock
status, renewed = both(renew_lock, "a/b", body=Renew(token=lock.token, lease_ttl_s=90))
assert (status, renewed.remaining_s) == (200, 90), renewed
status, queued = both(enqueue_lock, "a/b", by=other, body=Enqueue())
assert (status, queued.status) == (200, "queued"), queued
seen = show_lock.sync("a/b", client=client)
assert (seen.key, seen.held, seen.waiters) == ("a/b", 1, 1), seen
assert both(release_lock, "a/b", body=Release(token=lock.token)) == (204, None)
status, refused = both(release_lock, "a/b", body=Release(token=lock.token))
assert status == 404 and isinstance(refused, Error) and refused.error == "not_held", refused
status, granted = both(wait_lock, "a/b", by=other, body=Wait(timeout_s=10))
assert (status, granted.status) == (200, "ok") and int(granted.fence) > int(lock.fence), granted

slots = []
for _ in range(3):
    body = AcquireSemaphore(acquire_timeout_s=0, limit=2)
    status, grant = both(acquire_semaphore, "pool", body=body)
    slots.append((status, grant.status, grant.slot if grant.status == "ok" else None))
assert slots == [(200, "ok", 0), (200, "ok", 1), (200, "timeout", None)], slots
status, mismatch = both(acquire_semaphore, "pool", body=AcquireSemaphore(acquire_timeout_s=0, limit=3))
assert (status, mismatch.error) == (409, "limit_mismatch"), mismatch

# A hold without a session.
alone = acquire_lock.sync(
    "nightly", client=client, session=AcquireLockSession.NONE, body=Acquire(acquire_timeout_s=0)
)
gone = release_lock.sync_detailed(
    "nightly", client=client, session=ReleaseLockSession.NONE, body=Release(token=alone.token)
)
assert gone.status_code.value == 204, gone

assert ping_session.sync_detailed(session, client=client).status_code.value == 204
assert end_session.sync_detailed(session, client=client).status_code.value == 204
status, ended = both(acquire_lock, "a/b", body=Acquire(acquire_timeout_s=0))
assert (status, ended.error) == (410, "session_gone"), ended
assert get_health.sync(client=client).status == "ok"
print("all is as the document says")
