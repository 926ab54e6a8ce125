#!/bin/sh
# What a reverse proxy's host needs behind ipvs-direct-routing.yaml, as root and
# at each start of the host: it takes packets for the virtual address, and leaves
# it to the director to answer when the LAN asks who has that (ARP).
set -e
sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ip addr replace 192.168.1.200/32 dev lo

# Instead of these, packets for the virtual address can be led to the host's own
# address, which the proxy then sees. On raspberrypi0:
#
#     nft -f - <<'END'
#     table ip website {
#         chain prerouting {
#             type nat hook prerouting priority dstnat
#             ip daddr 192.168.1.200 dnat to 192.168.1.10
#         }
#     }
#     END
