"""Runs one module of CPython's tests and writes a line for each test as it begins and as it ends.

    python3 cpython_tests.py test_mmap RESULTS [SECONDS]

The lines: `start TIME NAME`, `pass|fail|skip NAME`, at the end `done`. A process that dies in a test leaves the line of its
start as the last: the caller then knows which, and starts this again; what RESULTS names already is not run a second time. A
test that takes longer than SECONDS ends the process.
"""

import faulthandler
import sys
import time
import unittest

from test import support


class Lines(unittest.TestResult):
    """Writes results where no output of a test can get between."""

    def __init__(self, path, limit):
        super().__init__()
        self.file = open(path, "a", buffering=1, encoding="utf-8")
        self.limit = limit
        self.verdict = "pass"

    def startTest(self, test):
        super().startTest(test)
        self.verdict = "pass"
        print("start", int(time.time()), test.id(), file=self.file)
        faulthandler.dump_traceback_later(self.limit, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        print(self.verdict, test.id(), file=self.file)

    def failed(self, test, error):
        self.verdict = "fail"
        # What setUpClass or setUpModule raise belongs to no test that was started.
        if not hasattr(test, "_testMethodName") and "(" in test.id():
            print("fail", test.id(), file=self.file)
        print(self._exc_info_to_string(error, test), file=sys.stderr)

    def addError(self, test, error):
        super().addError(test, error)
        self.failed(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.failed(test, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if self.verdict == "pass":
            self.verdict = "skip"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.verdict = "fail"


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


# One port for the whole machine, and without another end it waits for ever (tests of AF_VSOCK in test_socket).
LEFT_OUT = "VSOCK"


def without(suite, names):
    """The same suite, nested as it was (its fixtures depend on that), without some tests."""
    kept = type(suite)()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(without(test, names))
        elif test.id() not in names and LEFT_OUT not in test.id():
            kept.addTest(test)
    return kept


def main():
    module, path = sys.argv[1:3]
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else 90
    support.use_resources = ["subprocess"]
    support.verbose = 0
    try:
        with open(path, encoding="utf-8") as file:
            seen = {line.rstrip("\n").split(" ", 2)[2] for line in file if line.startswith("start ")}
    except FileNotFoundError:
        seen = set()
    suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    result = Lines(path, limit)
    without(suite, seen).run(result)
    print("done", file=result.file)


if __name__ == "__main__":
    main()
