
// SPDX-License-Identifier: GPL-2.0-only
// Not compiled by itself: added to a file, and coccicheck has to see it.
int planted_block(int a)
{
	if (a) {
		a = 1;
	};
	return a;
}
