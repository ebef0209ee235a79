# The example `handshake` ($ours), as server and client.
pair "100 connections" "listening 7400" "\"\$ours\" serve 10.99.0.2:7400 -C 100" "\"\$ours\" connect 10.99.0.2:7400 -C 100"
cat /tmp/first /tmp/second
summary
