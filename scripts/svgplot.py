# SPDX-License-Identifier: GPL-2.0-only
"""Draw line and bar charts as small SVG texts, readable in light and dark.

The text of an SVG has currentColor, and its style sheet follows the reader's
colour scheme; the background is transparent.  So the same text works inside a
page and as a picture of its own.  Nothing but the standard library is used.
"""

import math
from html import escape

WIDTH = 760
FONT = 13
# Of the values above bars.
SMALL = 11
# What a character of the font is wide at most, on average, in em.
CHARACTER = 0.6
LEFT, RIGHT, BOTTOM = 78, 16, 54
# Seen well enough on white and on black.
COLOURS = {"base": "#d9730d", "series": "#2f81f7", "off": "#2da44e",
           "history_8k": "#8b949e", "history_prefix": "#a371f7",
           "history": "#8b949e", "base_server": "#d9730d",
           "series_server": "#2f81f7", "base_softrt": "#bf3989",
           "series_softrt": "#1b9aaa", "ext_simple": "#2da44e",
           "ext_qmap": "#a371f7"}
MORE_COLOURS = ("#2da44e", "#bf3989", "#a371f7", "#8b949e", "#1b9aaa",
                "#c69026")
DASHES = ("", "6 4", "2 3", "9 3 2 3")
STYLE = ("svg{color:#1f2328;font:%dpx system-ui,-apple-system,'Segoe UI',"
         "'DejaVu Sans',sans-serif}text{fill:currentColor}"
         ".grid{stroke:currentColor;stroke-opacity:.18}"
         ".axis{stroke:currentColor;stroke-opacity:.7}"
         "@media(prefers-color-scheme:dark){svg{color:#e6edf3}}" % FONT)


def width_of(text):
    """Return about how wide a text (str) is, in pixels (float)."""
    return len(text) * FONT * CHARACTER


def number(value):
    """Format a tick's value (float) as short as it can be."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:.6g}"


def ticks(low, high, logarithmic):
    """Return the values (list of float) of an axis from low to high."""
    if logarithmic:
        first = math.floor(math.log10(low) + 1e-9)
        last = math.ceil(math.log10(high) - 1e-9)
        last = max(last, first + 1)
        step = max(1, math.ceil((last - first) / 7))
        last = first + math.ceil((last - first) / step) * step
        return [10.0 ** power for power in range(first, last + 1, step)]
    span = (high - low) or 1
    step = 10.0 ** math.floor(math.log10(span / 5))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= 6:
            step *= factor
            break
    count = math.ceil((high - low) / step - 1e-9)
    return [low + step * place for place in range(max(count, 1) + 1)]


def colour(name, place):
    """Return the colour (str) of the line or bars of a name."""
    return COLOURS.get(name) or MORE_COLOURS[place % len(MORE_COLOURS)]


class Chart:
    """What both kinds of chart have: title, legend, axes and the SVG.

    names: list of (key, label) of the legend.  low, high: what the y axis
    must show (float).
    """

    def __init__(self, title, y_label, names, low, high, logarithmic,
                 height, dashed=False):
        self.parts = []
        self.logarithmic = logarithmic
        self.values = ticks(low, high, logarithmic)
        self.names = names
        self.dashed = dashed
        self.title = title
        y = 22
        self.text(LEFT, y, title, weight="600")
        y = self.legend(y + 22)
        self.text(8, y + 8, y_label, opacity=".8")
        self.top = y + 24
        self.bottom = self.top + height
        self.height = self.bottom + BOTTOM
        self.y_axis()

    def text(self, x, y, text, anchor="start", weight=None, opacity=None,
             size=None):
        """Write a text (str) at a place in pixels."""
        more = f' font-weight="{weight}"' if weight else ""
        more += f' font-size="{size}"' if size else ""
        more += f' opacity="{opacity}"' if opacity else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor='
                          f'"{anchor}"{more}>{escape(text)}</text>')

    def dash(self, place):
        """Return the attribute (str) that tells lines apart without colour."""
        pattern = DASHES[place % len(DASHES)] if self.dashed else ""
        return f' stroke-dasharray="{pattern}"' if pattern else ""

    def legend(self, y):
        """Write the legend, in as many rows as it needs; returns the y."""
        x = LEFT
        for place, (key, label) in enumerate(self.names):
            wide = 34 + width_of(label)
            if x > LEFT and x + wide > WIDTH - RIGHT:
                x, y = LEFT, y + 20
            tint = colour(key, place)
            if self.dashed:
                self.parts.append(
                    f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" '
                    f'stroke="{tint}" stroke-width="2.5"{self.dash(place)}/>')
            else:
                self.parts.append(f'<rect x="{x + 6}" y="{y - 11}" width="13" '
                                  f'height="13" fill="{tint}"/>')
            self.text(x + 27, y, label)
            x += wide + 8
        return y + 14

    def at(self, value):
        """Return the y in pixels of a value (float)."""
        low, high = self.values[0], self.values[-1]
        if self.logarithmic:
            share = (math.log10(max(value, low)) - math.log10(low)) / \
                (math.log10(high) - math.log10(low))
        else:
            share = (value - low) / (high - low)
        return self.bottom - share * (self.bottom - self.top)

    def y_axis(self):
        """Draw the grid and the numbers of the y axis."""
        for value in self.values:
            y = self.at(value)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="'
                              f'{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.text(LEFT - 8, y + 4, number(value), "end")

    def x_axis(self, places, label):
        """Draw the x axis; places: list of (x in pixels, text).

        Texts that would touch the one before are left out.
        """
        self.parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
            f'y1="{self.bottom}" y2="{self.bottom}"/>')
        end = -math.inf
        for x, text in places:
            half = width_of(text) / 2
            if x - half < end + 6:
                continue
            end = x + half
            self.text(x, self.bottom + 18, text, "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, self.bottom + 40, label,
                  "middle", opacity=".8")

    def svg(self):
        """Return the whole picture (str)."""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="0 0 {WIDTH} {self.height:.0f}" width="{WIDTH}" '
                f'height="{self.height:.0f}" style="max-width:100%;'
                f'height:auto"><title>{escape(self.title)}</title><style>'
                f'{STYLE}</style>\n' + "\n".join(self.parts) + "\n</svg>\n")


def bounds(values, logarithmic):
    """Return (low, high) of the axis for values (list of float or None)."""
    there = [value for value in values if value is not None
             and (value > 0 or not logarithmic)]
    if not there:
        return (1.0, 10.0) if logarithmic else (0.0, 1.0)
    if logarithmic:
        return min(there), max(there)
    return min(0.0, min(there)), max(there) or 1.0


def line_chart(title, x_label, y_label, x_names, lines, logarithmic=False,
               height=250, positions=None, high=None):
    """Return an SVG (str) with lines.

    x_names: texts of the x axis, one a point; with positions a list of
    (position, text).  lines: list of (key, label, values), values with None
    where there is none.  positions: where on the x axis the points are (list
    of float), evenly spaced when not given.  high: the least upper end of
    the y axis.
    """
    every = [value for _, _, values in lines for value in values]
    if high is not None:
        every.append(high)
    low, top = bounds(every, logarithmic)
    chart = Chart(title, y_label, [line[:2] for line in lines], low, top,
                  logarithmic, height, dashed=True)
    where = positions or list(range(len(x_names)))
    span = (where[-1] - where[0]) or 1
    room = WIDTH - RIGHT - LEFT - 50

    def across(place):
        return LEFT + 25 + room * (place - where[0]) / span

    xs = [across(place) for place in where]
    chart.x_axis([(across(place), text) for place, text in x_names]
                 if positions else list(zip(xs, x_names)), x_label)
    for place, (key, _, values) in enumerate(lines):
        tint = colour(key, place)
        pieces, points = [], []
        for x, value in zip(xs, values):
            if value is None or (logarithmic and value <= 0):
                pieces.append([])
                continue
            points.append((x, chart.at(value)))
            if not pieces:
                pieces.append([])
            pieces[-1].append(points[-1])
        for piece in pieces:
            if len(piece) > 1:
                chart.parts.append(
                    f'<polyline fill="none" stroke="{tint}" stroke-width='
                    f'"2.5"{chart.dash(place)} points="'
                    + " ".join(f"{x:.1f},{y:.1f}" for x, y in piece) + '"/>')
        chart.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" '
                        f'fill="{tint}"/>' for x, y in points]
    return chart.svg()


def bar_chart(title, x_label, y_label, groups, bars, logarithmic=False,
              height=250, form=number):
    """Return an SVG (str) with groups of bars, their values above them.

    groups: texts of the x axis.  bars: list of (key, label, values).  form:
    from a value (float) to its text.
    """
    every = [value for _, _, values in bars for value in values]
    low, high = bounds(every, logarithmic)
    chart = Chart(title, y_label, [bar[:2] for bar in bars], low, high,
                  logarithmic, height)
    room = (WIDTH - RIGHT - LEFT) / max(len(groups), 1)
    wide = min(46.0, room * 0.82 / max(len(bars), 1))
    places = []
    for number_of, group in enumerate(groups):
        middle = LEFT + room * (number_of + 0.5)
        places.append((middle, group))
        for place, (key, _, values) in enumerate(bars):
            value = values[number_of]
            if value is None:
                continue
            x = middle + (place - len(bars) / 2) * wide
            y = chart.at(value)
            chart.parts.append(
                f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" '
                f'height="{max(chart.bottom - y, 0.5):.1f}" '
                f'fill="{colour(key, place)}"/>')
            text = form(value)
            if width_of(text) * SMALL / FONT <= wide + 0.5:
                chart.text(x + wide / 2, y - 4, text, "middle", size=SMALL)
    chart.x_axis(places, x_label)
    return chart.svg()
