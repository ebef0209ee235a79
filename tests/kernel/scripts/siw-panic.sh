# Makes a VM's kernel panic, without cmid: cargo xtask softroce --transport siw -- sh tests/kernel/scripts/siw-panic.sh
# A TCP server answers the request of rdma-core's rping with 20 bytes, of which the last two are a number above 256
# (docs/semantics.md 16.2, 17).
cat >/tmp/answer <<'END'
#!/bin/sh
head -c 16 >/dev/null
printf 'sixteen bytes...\000\000\020\000'
sleep 2
END
chmod +x /tmp/answer
busybox nc -l -p 7950 -e /tmp/answer &
sleep 1
rping -c -a 10.99.0.1 -p 7950 -C 1
