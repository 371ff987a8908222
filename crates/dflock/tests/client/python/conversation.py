"""What programs do with dflockd's Python clients, with the client and the server that are named:

    conversation.py {sync|async} SCENE HOST:PORT [HOST:PORT ...]

Ends with 0 when everything went as users of the client expect. The same scene serves both kinds of
client: calls of the one are made in threads, calls of the other are awaited.
"""

import asyncio
import os
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

kind, scene, *servers = sys.argv[1:]
SERVERS = [(host, int(port)) for host, port in (server.rsplit(":", 1) for server in servers)]
try:
    # The second generation.
    from dflockd_client import _async, _sync

    clients = {"sync": _sync, "async": _async}[kind]
except ImportError:
    from dflockd_client import client, sync_client

    clients = {"sync": sync_client, "async": client}[kind]


async def do(function, *arguments):
    if kind == "async":
        return await function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def lock(key, **settings):
    return clients.DistributedLock(key, servers=SERVERS, **settings)


def semaphore(key, limit, **settings):
    return clients.DistributedSemaphore(key, limit=limit, servers=SERVERS, **settings)


def check(truth, *story):
    if not truth:
        raise AssertionError(story)


def check_token(token):
    check(len(token) == 32 and set(token) <= set("0123456789abcdef"), token)


async def locks():
    first, second = lock("k", lease_ttl_s=60), lock("k", acquire_timeout_s=1)
    check(await do(first.acquire) is True)
    check_token(first.token)
    check(first.lease == 60, first.lease)
    check(await do(second.acquire) is False, "the second had it too")
    check(await do(first.release))
    check(await do(second.acquire) is True)
    check(second.lease == 33, second.lease)
    check(await do(second.release))
    now = lock("k", acquire_timeout_s=0)
    check(await do(now.acquire) is True)
    check(await do(now.release))


async def waiting_in_line():
    holder = lock("k")
    check(await do(holder.acquire))
    order = []

    async def wait(number):
        waiter = lock("k", acquire_timeout_s=60)
        check(await do(waiter.acquire))
        order.append(number)
        await do(waiter.release)

    waiting = []
    for number in range(4):
        waiting.append(asyncio.create_task(wait(number)))
        await until_waiters(number + 1)
    check(await do(holder.release))
    await asyncio.gather(*waiting)
    check(order == [0, 1, 2, 3], order)


async def until_waiters(count):
    """The test that drives this program counts the waiters, and says when they are there."""
    print(f"waiters {count}", flush=True)
    check((await asyncio.to_thread(sys.stdin.readline)).strip() == "go on")


async def two_phases():
    first, second = lock("k"), lock("k")
    check(await do(first.enqueue) == "acquired")
    check(await do(second.enqueue) == "queued")
    check(await do(first.wait, 5) is True)
    check(await do(second.wait, 1) is False)
    third = lock("k")
    check(await do(third.enqueue) == "queued")
    check(await do(first.release))
    check(await do(third.wait, 5) is True)
    check_token(third.token)
    check(await do(third.release))


async def renewal():
    """The other one waits for longer than the lease, in vain.

    Renewals come each four and a half seconds, so none is under way after eleven seconds: the older
    asynchronous clients mix up the replies to a renewal and a release that meet.
    """
    holder, other = lock("k", lease_ttl_s=9), lock("k", acquire_timeout_s=11)
    check(await do(holder.acquire))
    token = holder.token
    check(await do(other.acquire) is False, "the lease ran out")
    check(holder.token == token)
    check(await do(holder.release))


async def semaphores():
    slots = [semaphore("pool", 3) for _ in range(3)]
    for slot in slots:
        check(await do(slot.acquire) is True)
    check(len({slot.token for slot in slots}) == 3)
    fourth = semaphore("pool", 3, acquire_timeout_s=1)
    check(await do(fourth.acquire) is False)
    queued = semaphore("pool", 3)
    check(await do(queued.enqueue) == "queued")
    check(await do(slots[0].release))
    check(await do(queued.wait, 5) is True)
    for slot in [*slots[1:], queued]:
        check(await do(slot.release))


async def contention():
    """Forty increments of a number in a file, by eight at once, none of which is lost."""
    path = os.environ["COUNTER"]

    async def count():
        for _ in range(5):
            mine = lock("k", acquire_timeout_s=60)
            check(await do(mine.acquire))
            with open(path) as file:
                number = int(file.read())
            await asyncio.sleep(0)
            with open(path, "w") as file:
                file.write(str(number + 1))
            check(await do(mine.release))

    await asyncio.gather(*(count() for _ in range(8)))
    with open(path) as file:
        check(file.read() == "40")


async def shards():
    """Holds four keys, for whoever drives this program to look where they are."""
    held = [lock(key) for key in ("my-job", "a", "123456789", "schlüssel")]
    for one in held:
        check(await do(one.acquire))
    await until_waiters(0)
    for one in held:
        check(await do(one.release))


async def secrets():
    right = lock("k", auth_token=os.environ["SECRET"])
    check(await do(right.acquire))
    check(await do(right.release))
    for settings in ({"auth_token": "wrong"}, {}):
        other = lock("k", **settings)
        try:
            await do(other.acquire)
        except (PermissionError, RuntimeError, OSError):
            continue
        raise AssertionError("let in")


async def secrecy():
    context = ssl.create_default_context(cafile=os.environ["AUTHORITY"])
    mine = lock("k", ssl_context=context)
    check(await do(mine.acquire))
    check(await do(mine.release))


async def low_level():
    """The second generation's calls, and an exception for every refusal."""
    import dflockd_client as all_of_it

    host, port = SERVERS[0]
    open_settings = {"ssl_context": None, "connect_timeout_s": 5.0}

    async def connect():
        if kind == "async":
            return await clients.open_conn(host, port, **open_settings)
        return clients.open_conn(host, port, **open_settings)

    async def refused(error, function, *arguments):
        try:
            await do(function, *arguments)
        except error:
            return
        raise AssertionError((error, function, arguments))

    mine, other = await connect(), await connect()
    token, lease = await do(clients.acquire, mine, "k", 0, 60)
    check_token(token)
    check(lease == 60)
    fence = all_of_it.fence_from_token(token)
    check(await do(clients.renew, mine, "k", token, 120) == 120)
    check(await do(clients.renew, mine, "k", token) == 33)
    await refused(all_of_it.DflockdTimeoutError, clients.acquire, other, "k", 0)
    await refused(all_of_it.LimitMismatchError, clients.sem_acquire, other, "k", 0, 2)
    await refused(all_of_it.NotQueuedError, clients.wait, other, "k", 0)
    check((await do(clients.enqueue, other, "k"))[0] == "queued")
    await refused(all_of_it.AlreadyQueuedError, clients.enqueue, other, "k")
    full = await connect()
    await refused(all_of_it.MaxWaitersError, clients.acquire, full, "k", 5)
    await do(clients.release, mine, "k", token)
    await refused(all_of_it.DflockdError, clients.release, mine, "k", token)
    await refused(all_of_it.DflockdError, clients.renew, mine, "k", token)
    later, lease = await do(clients.wait, other, "k", 5)
    check(all_of_it.fence_from_token(later) > fence)
    picture = await do(clients.stats, mine)
    check([row["key"] for row in picture["locks"]] == ["k"], picture)
    check(picture["connections"] == 3, picture)
    await do(clients.release, other, "k", later)
    slot, _ = await do(clients.sem_acquire, mine, "pool", 0, 2, 5)
    check(await do(clients.sem_renew, mine, "pool", slot, 7) == 7)
    await do(clients.sem_release, mine, "pool", slot)
    short = (await do(clients.enqueue, mine, "short", 1))[1]
    check_token(short)
    waiter = await connect()
    check(await do(clients.acquire, waiter, "short", 10))
    await refused(all_of_it.LeaseExpiredError, clients.wait, mine, "short", 0)
    many = await connect()
    try:
        for number in range(100):
            await do(clients.acquire, many, f"key-{number}", 0)
        raise AssertionError("no end of keys")
    except all_of_it.MaxLocksError:
        pass
    for connection in (mine, other, full, waiter, many):
        closed = connection.close()
        if closed is not None:
            await closed


async def draining():
    import dflockd_client as all_of_it

    holder, waiter = lock("k"), lock("k", acquire_timeout_s=60)
    check(await do(holder.acquire))
    waiting = asyncio.create_task(do(waiter.acquire))
    await until_waiters(1)
    try:
        await waiting
        raise AssertionError("no word of the end")
    except all_of_it.DrainingError:
        pass
    check(await do(holder.release), "what is held may be released while the server ends")


async def restart():
    """The holder's server is killed and started again under it."""
    import dflockd_client as all_of_it

    host, port = SERVERS[0]

    async def connect():
        settings = {"ssl_context": None, "connect_timeout_s": 5.0}
        opened = clients.open_conn(host, port, **settings)
        return await opened if kind == "async" else opened

    first = await connect()
    token, _ = await do(clients.acquire, first, "k", 0, 30)
    await until_waiters(0)
    mine, rival = await connect(), await connect()
    try:
        await do(clients.acquire, rival, "k", 0)
        raise AssertionError("somebody else got it")
    except all_of_it.DflockdTimeoutError:
        pass
    check(await do(clients.renew, mine, "k", token, 30) == 30)
    await do(clients.release, mine, "k", token)
    later, _ = await do(clients.acquire, rival, "k", 5)
    check(all_of_it.fence_from_token(later) > all_of_it.fence_from_token(token))
    for connection in (first, mine, rival):
        closed = connection.close()
        if closed is not None:
            await closed


async def play():
    # Waiters for a lock must not use up the threads that its holder needs to release it.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    await asyncio.wait_for(globals()[scene](), 60)


asyncio.run(play())
