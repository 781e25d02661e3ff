"""Keys once, never twice at the same time, failed ones later."""

import asyncio

import pytest

from wattkeeper.handlers.workqueue import WorkQueue


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(jitter=lambda: 1.0)


async def test_keys_come_once_and_in_order(queue: WorkQueue[str]) -> None:
    for key in ("b", "a", "b"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["b", "a"]


async def test_a_key_that_is_worked_on_comes_again_afterwards(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.05)
    assert not queue.idle
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_a_waiting_worker_is_woken(queue: WorkQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(waiting, 1) == "a"


async def test_failures_wait_ever_longer_and_a_success_forgets_them(queue: WorkQueue[str]) -> None:
    delays = []
    for _ in range(10):
        queue.add("a")
        await queue.get()
        delays.append(queue.failed("a"))
    assert delays == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0]
    queue.add("a")
    await queue.get()
    queue.done("a")
    queue.add("a")
    await queue.get()
    assert queue.failed("a") == 0.2
    queue.close()


async def test_the_server_may_ask_for_more_patience(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    assert queue.failed("a", after_seconds=7.0) == 7.0
    queue.close()


async def test_a_failed_key_comes_again_by_itself(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.failed("a")
    assert await asyncio.wait_for(queue.get(), 2) == "a"


async def test_the_earlier_of_two_times_holds(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 60)
    assert await asyncio.wait_for(queue.get(), 1) == "a"
    queue.add_after("b", 60)
    queue.add("b")  # at once: the timer is of no use any more
    assert await asyncio.wait_for(queue.get(), 1) == "b"
    assert len(queue) == 0
    queue.close()
