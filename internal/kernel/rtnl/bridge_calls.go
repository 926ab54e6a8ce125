package rtnl

import (
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bridgeCalls are the settings of a bridge that make the packets that it forwards pass
// the IP rules (br_netfilter).
type bridgeCalls struct{ v4, v6 bool }

// callsOf returns the settings of the bridges among links, by the index of the link.
// messages are the kernel's about the links.
func callsOf(messages [][]byte) map[int]bridgeCalls {
	found := map[int]bridgeCalls{}
	for _, m := range messages {
		l := nl.DeserializeIfInfomsg(m)
		info := nlutil.Attribute(m[l.Len():], unix.IFLA_LINKINFO)
		if kind := nlutil.Attribute(info, unix.IFLA_INFO_KIND); unix.ByteSliceToString(kind) != "bridge" {
			continue
		}
		found[int(l.Index)] = bridgeCalls{nlutil.Flag(info, unix.IFLA_INFO_DATA, unix.IFLA_BR_NF_CALL_IPTABLES),
			nlutil.Flag(info, unix.IFLA_INFO_DATA, unix.IFLA_BR_NF_CALL_IP6TABLES)}
	}
	return found
}
