from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

from dqnspeed.system.child_processes import end_with_parent

SPAWN = multiprocessing.get_context("spawn")


def wait_for(lock: Any, here: Connection) -> None:
    end_with_parent()
    here.send("begun")
    lock.acquire()
    here.send("the lock was free")


def hold_a_lock(here: Connection) -> None:
    lock = SPAWN.Lock()
    lock.acquire()
    child = SPAWN.Process(target=wait_for, args=(lock, here))
    child.start()
    here.close()
    child.join()


def test_a_process_ends_with_its_parent_though_that_was_killed_with_a_lock() -> None:
    there, here = SPAWN.Pipe(duplex=False)
    parent = SPAWN.Process(target=hold_a_lock, args=(here,))
    parent.start()
    here.close()
    assert there.recv() == "begun"
    parent.kill()
    parent.join()
    try:
        told = there.recv() if there.poll(30) else "waits for ever"
    except EOFError:
        told = "ended"
    assert told == "ended"
