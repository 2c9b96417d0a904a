#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Write the image: pack.sh FOLDER BASE SERIES PROGRAM...
#
# FOLDER/root has more files for the initramfs, FOLDER/image is written.  All
# dates and numbers are fixed, so two runs write the same bytes.
set -eu
export PATH="$PATH:/sbin" SOURCE_DATE_EPOCH=946684800 TZ=UTC MTOOLSRC=/dev/null
stick=$(dirname "$(realpath "$0")")
cd "$1"
mkdir -p root/bin disk/EFI/BOOT disk/grub disk/results
cp "$2" disk/base
cp "$3" disk/series
shift 3
cp "$@" root/bin
cp "$stick/run.sh" root/init
cp "$stick/table.awk" "$stick/steps" "$stick/figures" root
cd root
chmod -R 755 .
find . -mindepth 1 -exec touch -d @0 {} +
find . -mindepth 1 | sort | cpio -o -H newc --reproducible -R 0:0 | gzip -9n >../disk/initramfs
cd ..

# Both parts of GRUB for BIOS find each other where they are: the second one
# from sector 1 on.  The two bytes: where firmware does not say from which
# drive it boots, the first.
modules="datehook echo fat halt linux loadenv normal part_msdos serial smbios terminal test"
grub-mkimage -O x86_64-efi -p /grub -o disk/EFI/BOOT/BOOTX64.EFI efi_gop efi_uga $modules
grub-mkimage -O i386-pc -p '(,msdos1)/grub' -o core biosdisk $modules
truncate -s 64M image
echo 'label-id: 0x494f5054
start=2048, type=c, bootable' | sfdisk -q image
dd if=/usr/lib/grub/i386-pc/boot.img of=image bs=440 count=1 conv=notrunc
printf '\220\220' | dd of=image bs=1 seek=102 conv=notrunc
dd if=core of=image seek=1 conv=notrunc

cp "$stick/grub.cfg" disk/grub
cp "$stick/README.md" disk/README.txt
printf '%-1024s' '#_GRUB_Environment_Block/' | tr '_ /' ' #\n' >disk/grub/grubenv
mformat -i image@@1M -F -N 494F5054 -v IOPORTS -T 129024 -H 2048 -h 255 -s 63 ::
cd disk
mcopy -i ../image@@1M -s -Q ./* ::
