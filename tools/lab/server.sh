#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A LAVA server with a worker and one QEMU device, in a root of their own.
#
# usage: server.sh install     install the packages and set all up
#        server.sh run FOLDER  run FOLDER/job.yaml, write FOLDER/job.log
#
# 'python -m tools.lab --run' starts it, in namespaces of its own: when it
# ends, all that it started ends.  http://localhost:8080 serves FOLDER.
set -eu

logs=/var/log/lava-server
data=/var/lib/postgresql
token=only-within-this-root

manage() { lava-server manage "$@"; }

database() { pg_ctlcluster "$(ls $data | head -n 1)" main "$@"; }

install_all() {
	echo "step: installing packages"
	# No service is to start by itself.
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod +x /usr/sbin/policy-rc.d
	apt-get update
	apt-get install -y --no-install-recommends iproute2 postgresql
	database start
	apt-get install -y --no-install-recommends lava-server lava-dispatcher \
		lavacli qemu-system-x86 cpio xz-utils
	apt-get clean
	echo "step: setting up the server"
	manage users add --superuser --passwd $token lab
	manage tokens add --user lab --secret $token
	manage workers add lab | sed -n 's/^Token: //p' >/etc/lava-dispatcher/token
	manage device-types add qemu
	manage devices add --device-type qemu --worker lab qemu-01
	echo "{% extends 'qemu.jinja2' %}" \
		>/etc/lava-server/dispatcher-config/devices/qemu-01.jinja2
	# There is no network to find it by.
	mkdir -p /etc/lava-server/dispatcher.d/lab
	echo "dispatcher_ip: 127.0.0.1" >/etc/lava-server/dispatcher.d/lab/dispatcher.yaml
	database stop
	# Each run begins with this, whatever became of the one before.
	mv $data $data.clean
}

run_job() {
	uri="--uri http://lab:$token@localhost:8000/RPC2"
	echo "step: starting LAVA"
	rm -rf $data /var/lib/lava/dispatcher/* /var/lib/lava-server/default/media/job-output
	cp -a $data.clean $data
	ip link set lo up
	mkdir -p /run/postgresql
	chown postgres: /run/postgresql
	database start
	gunicorn3 lava_server.wsgi -b 127.0.0.1:8000 -u lavaserver \
		-g lavaserver --worker-class eventlet --workers 2 --timeout 120 \
		--log-file $logs/gunicorn.log &
	manage lava-scheduler --level INFO --log-file $logs/lava-scheduler.log &
	manage lava-publisher --level INFO --log-file $logs/lava-publisher.log &
	python3 -m http.server -b 127.0.0.1 -d "$1" 8080 >/dev/null 2>&1 &
	for _ in $(seq 120); do
		lavacli $uri system version >/dev/null 2>&1 && break
		sleep 1
	done
	lava-worker --level INFO --url http://localhost:8000 --name lab \
		--token-file /etc/lava-dispatcher/token &
	manage devices update --health GOOD qemu-01
	echo "step: submitting the job"
	id=$(lavacli $uri jobs submit "$1/job.yaml")
	echo "step: running the job"
	lavacli $uri jobs logs --raw "$id" >"$1/job.log"
	lavacli $uri jobs show "$id"
}

case "$1" in
install) install_all ;;
run) run_job "$2" ;;
esac
