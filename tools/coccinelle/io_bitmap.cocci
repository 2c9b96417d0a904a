// SPDX-License-Identifier: GPL-2.0-only
/// Nobody but arch/x86/kernel/ioport.c looks into a task's I/O bitmap, and only
/// tss_copy_io_bitmap() copies it: all readers ask current_may_use_ports() or
/// io_bitmap_view(), so that none can read past a short allocation or forget
/// iopl(3).
//
// Confidence: High
// Options: --no-includes --include-headers

virtual report

@typed@
struct io_bitmap *iobm;
position p;
@@

iobm->bitmap@p

@member@
expression E;
position p;
@@

(
E->io_bitmap->bitmap@p
|
E.io_bitmap->bitmap@p
)

@script:python depends on report@
p << typed.p;
@@

if p[0].current_element != "tss_copy_io_bitmap":
  coccilib.report.print_report(p[0], "direct use of an I/O bitmap")

@script:python depends on report@
p << member.p;
@@

if p[0].current_element != "tss_copy_io_bitmap":
  coccilib.report.print_report(p[0], "direct use of an I/O bitmap")
