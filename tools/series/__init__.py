# SPDX-License-Identifier: GPL-2.0-only
"""The base kernel and the series on it: base, apply, tree, export."""
