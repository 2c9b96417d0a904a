#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# disk.sh ROOT DISK CONSOLE FILE...: make a disk of a Debian, with files in /srv.
# It has no boot loader yet; CONSOLE are parameters of the kernels that it boots.
# Each boot runs the script that is on the second disk, and ends.
set -e

root=$1 disk=$2 console=$3
shift 3
cp "$@" "$root/srv"
echo "/dev/vda1 / ext4 defaults 0 1" >"$root/etc/fstab"
cat >"$root/etc/default/grub" <<END
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_CMDLINE_LINUX="$console"
GRUB_TERMINAL=serial
END
cat >"$root/etc/rc.local" <<END
#!/bin/sh
cat /dev/vdb >/run/script
sh /run/script </dev/null >/dev/ttyS0 2>&1
poweroff
END
chmod 755 "$root/etc/rc.local"
# It would hang up who writes there.
: >"$root/etc/systemd/system/serial-getty@ttyS0.service"

truncate -s 4G "$disk"
echo 2048,,L,* | sfdisk "$disk"
# GRUB 2.06 reads neither of these features.
mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -E offset=1048576 \
	-d "$root" "$disk" $(($(stat -c %s "$disk") / 1024 - 1024))
