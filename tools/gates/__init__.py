# SPDX-License-Identifier: GPL-2.0-only
"""What takes too long for 'make check': compilers, checkers, more kernels."""
