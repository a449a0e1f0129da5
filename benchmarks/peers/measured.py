"""Runs a command with a limit of processor time, and tells what it took.

    python measured.py SECONDS COMMAND ...

prints one line of JSON: the exit code (negative: the signal that ended it), the processor seconds
of the command and all it started, and the peak memory of its largest process in MB. It is a process
of its own, for a process begins with the peak memory of the one that started it: this one is small.
The limit is of each process, and of processor time, so that other work on the machine ends nothing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys


def main() -> None:
    """Runs the command of the command line."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    process = subprocess.Popen(sys.argv[2:], stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    found = {
        "exit_code": process.returncode,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
