
// SPDX-License-Identifier: GPL-2.0-only
// Not compiled by itself: added to a file, and kernel-doc has to see it.
/**
 * planted_doc() - Do it.
 */
int planted_doc(int planted_number)
{
	return planted_number;
}
