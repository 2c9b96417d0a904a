
// SPDX-License-Identifier: GPL-2.0-only
// Not compiled by itself: added to a file, and sparse has to see it.
static int __user *planted_pointer;
int planted_read(void);
int planted_read(void)
{
	return *planted_pointer;
}
