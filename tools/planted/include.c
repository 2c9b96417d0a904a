
// SPDX-License-Identifier: GPL-2.0-only
// Not compiled by itself: added to a file, and every compiler has to see it.
int planted_size(void);
int planted_size(void)
{
	return zlib_inflate_workspacesize();
}
