# SPDX-License-Identifier: GPL-2.0-only
"""Write the image of a USB stick that measures base and series on a PC."""

from tools.boards import build_stick
from tools.core import Given, Kernel, build_lock, say, shown_path


def main(kernel: Kernel, given: Given) -> None:
    with build_lock(kernel):
        output = shown_path(build_stick(kernel))
    say(f"written: {output}; as root, and all that is on that stick goes:\n"
        f"dd if={output} of=/dev/sdX bs=1M conv=fsync")
