# SPDX-License-Identifier: GPL-2.0-only
"""Write a page of two files of 'make measure', A= and B=, side by side; or
of one file of a board twice."""

import json
from pathlib import Path

from tools.core import Fail, Given, Kernel, build_lock
from tools.figures import Samples


def look(kernel: Kernel, given: Given) -> tuple[Samples, list[str]]:
    """Return the figures of both, and what they say of themselves."""
    samples, head = Samples(), []
    for letter, column in (("A", "base"), ("B", "series")):
        if letter not in given:
            raise Fail("give A= and B=: two files of 'make measure'")
        try:
            found = json.loads(Path(given[letter]).read_text())
            # One of the stick has both.
            found = found.get(column, found)
            head += ["", f"{letter}: {found['machine']}; "
                     f"{found['date'][:16]}, {len(found['cells'])} runs."]
            for name, result in found["cells"].items():
                samples.add(name.rpartition(".")[0], column, result)
        except (OSError, ValueError, KeyError, TypeError,
                AttributeError) as failure:
            raise Fail(f"{letter}={given[letter]} is not a result of "
                       f"'make measure': {failure!r}") from None
    return samples, head


def main(kernel: Kernel, given: Given) -> None:
    """Write the page."""
    from tools import page  # here, because it needs matplotlib

    samples, head = look(kernel, given)
    with build_lock(kernel):
        page.write(samples, {"base": "A", "series": "B"}, [
            "# Two kernels, measured with `make measure`", *head, "",
            f"{page.RULE} Figures of two machines tell nothing about two "
            "kernels. Times of I/O ports are in ticks of the TSC."],
            kernel.results / "compare")
