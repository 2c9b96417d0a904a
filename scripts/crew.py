# SPDX-License-Identifier: GPL-2.0-only
"""Several pieces of work at a time, such as guests that are booted."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import time

from common import Fail, duration, say, stage


class Crew:
    """Does pieces of work, several at a time.

    jobs: how many; one is done in this process.  failed: [what was said by
    the Fail of each piece that failed].
    """

    def __init__(self, jobs):
        self.jobs = jobs
        self.failed = []
        self.running = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Only after an interruption is there something left.
        for process, _, _, _ in self.running.values():
            process.terminate()
        for process, _, _, _ in self.running.values():
            process.join()

    def do(self, title, name, work):
        """Begin a piece of work, a function, as soon as there is room."""
        if self.jobs == 1:
            with stage(title):
                try:
                    work()
                except Fail as failure:
                    self.fail(name, str(failure))
            return
        while len(self.running) >= self.jobs:
            self.wait()
        say(f"==> {title}")
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=self.child, args=(theirs, work))
        process.start()
        theirs.close()
        self.running[process.sentinel] = process, ours, name, \
            time.monotonic()

    @staticmethod
    def child(pipe, work):
        """Work in a process of its own; say what went wrong, and the time.

        The one that waits may see the end later: it builds kernels too.
        """
        start = time.monotonic()
        why = ""
        with open(os.devnull, "w") as nothing, \
                contextlib.redirect_stdout(nothing):
            try:
                work()
            except Fail as failure:
                why = str(failure)
            except KeyboardInterrupt:
                sys.exit(130)
        pipe.send((why, time.monotonic() - start))

    def fail(self, name, why):
        """Count a piece that failed."""
        self.failed.append(name)
        say(f"    FAILED: {why}")

    def wait(self):
        """Wait until one has ended, and say now and then which run."""
        ended = []
        while not ended:
            ended = multiprocessing.connection.wait(list(self.running), 60)
            if not ended:
                say("    " + ", ".join(
                    f"{name} {duration(time.monotonic() - start)}"
                    for _, _, name, start in self.running.values()))
        for sentinel in ended:
            process, pipe, name, start = self.running.pop(sentinel)
            why, seconds = f"{name} ended without a word", \
                time.monotonic() - start
            with contextlib.suppress(EOFError):
                why, seconds = pipe.recv()
            process.join()
            say(f"    {name}: {duration(seconds)}")
            if why:
                self.fail(name, why)

    def finish(self):
        """Wait until all have ended."""
        while self.running:
            self.wait()
