# SPDX-License-Identifier: GPL-2.0-only
"""Pictures of results, drawn with matplotlib as SVG texts."""

import io
import logging
import re
from typing import Any

# It warns of a home where it may not write.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
import matplotlib  # noqa: E402

from tools.figures import Samples  # noqa: E402

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (after the choice of a backend)

# One text for the same figures: no names drawn by lot.
pyplot.rcParams.update({
    "svg.hashsalt": "series", "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"], "axes.grid": True,
    "grid.alpha": 0.3, "axes.axisbelow": True, "axes.titlesize": 10.5,
    "axes.spines.top": False, "axes.spines.right": False,
    "lines.markersize": 5, "legend.frameon": False})
# Colour, line, mark and hatch of the columns, which differ in print, too.
LOOKS = (("#d9730d", "--", "o", "//"), ("#2f81f7", "-", "s", ""),
         ("#2da44e", ":", "^", "xx"), ("#a371f7", "-.", "v", "||"),
         ("#8b949e", "--", "D", "\\\\"), ("#8c2a66", ":", "x", "++"),
         ("#0f6b78", "-.", "*", "--"), ("#e06fb0", ":", "P", "/"))


def values_of(samples: Samples, chart: dict[str, Any],
              columns: dict[str, str]) -> dict[str, list[float]]:
    """Return {title: medians of a chart}, of the columns that have more than
    one of several."""
    one, nan = chart.get("one", ""), float("nan")

    def value(column: str, case: str) -> float:
        found, = samples.medians(chart["program"], [column], case,
                                 chart["figure"])
        return nan if found is None else found

    def relative(column: str, case: str) -> float:
        unit = value(one, case) if one in columns else value(column, one)
        return value(column, case) / (unit if one else 1)

    found = {title: [relative(column, case) for _, case in chart["points"]]
             for column, title in columns.items()}
    # NaN is not equal to itself.
    return {title: values for title, values in found.items()
            if sum(value == value for value in values) > (len(values) > 1)}


def shorter(text: str) -> str:
    """Return matplotlib's SVG with one element on each line, without
    metadata, groups, which say nothing here, and long fractions."""
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|</?g\b[^>]*>", "",
                  text, flags=re.S)
    text = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}"
                  if float(found[0]) < 1 else f"{float(found[0]):.1f}",
                  " ".join(text.split()))
    return re.sub(r"<defs> *</defs>", "", text).replace("> <", ">\n<") + "\n"


def draw(samples: Samples, columns: dict[str, str],
         charts: list[dict[str, Any]]) -> str:
    """Return charts of medians as one SVG; columns: {column: title}.

    A chart has "program", "figure" and "points", tick and case: words as
    ticks get bars, numbers get lines.  "one": what is 1, a case of the same
    column or a column of the same case.  "axes": as Axes.set() has it.
    """
    wide = min(2, len(charts))
    rows = len(charts) // wide
    picture, axes = pyplot.subplots(
        rows, wide, figsize=(10, 2.9 * rows + 0.4), squeeze=False,
        layout="constrained")
    legend: dict[str, Any] = {}
    for axis, chart in zip(axes.flat, charts):
        ticks = [tick for tick, _ in chart["points"]]
        bars = isinstance(ticks[0], str)
        found = values_of(samples, chart, columns)
        for number, (title, values) in enumerate(found.items()):
            colour, line, mark, hatch = LOOKS[number % len(LOOKS)]
            if bars:
                thick = 0.86 / len(found)
                legend[title] = axis.bar(
                    [place - 0.43 + thick * (number + 0.5)
                     for place in range(len(ticks))], values, thick * 0.92,
                    hatch=hatch, color=colour, edgecolor="white")
                axis.bar_label(legend[title], fmt="{:.3g}", fontsize=7)
            else:
                legend[title], = axis.plot(
                    ticks, values, color=colour, linestyle=line, marker=mark)
        axis.set(title=chart["title"], **chart.get("axes", {}))
        if bars or axis.get_xscale() == "log":
            axis.set_xticks(range(len(ticks)) if bars else ticks,
                            map(str, ticks))
            axis.xaxis.minorticks_off()
        if axis.get_yscale() == "log":
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.minorticks_off()
        else:
            axis.set_ylim(bottom=0)
    picture.legend(legend.values(), legend.keys(), ncols=5,
                   loc="outside lower center")
    text = io.StringIO()
    picture.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(picture)
    return shorter(text.getvalue())
