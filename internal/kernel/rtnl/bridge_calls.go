package rtnl

import (
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bridgeCalls are the settings of a bridge that make the packets that it forwards pass
// the IP rules (br_netfilter).
type bridgeCalls struct{ v4, v6 bool }

// Attributes of a bridge (linux/if_link.h: IFLA_BR_NF_CALL_*).
const (
	bridgeCallIPTables  = 36
	bridgeCallIP6Tables = 37
)

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
		data := nlutil.Attribute(info, unix.IFLA_INFO_DATA)
		on := func(kind uint16) bool {
			value := nlutil.Attribute(data, kind)
			return len(value) == 1 && value[0] != 0
		}
		found[int(l.Index)] = bridgeCalls{on(bridgeCallIPTables), on(bridgeCallIP6Tables)}
	}
	return found
}
