
// SPDX-License-Identifier: GPL-2.0-only
// Not compiled by itself: added to a file, and clang has to see it at W=1.
void planted_count(int times);
void planted_count(int times)
{
	int planted_unused = 0;

	while (times--)
		planted_unused++;
}
