package nft

import (
	"encoding/binary"
	"fmt"

	"fairlead/internal/kernel/nlutil"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nfgenLen is the length in bytes of a struct nfgenmsg, the header of all
// netfilter messages.
const nfgenLen = 4

// ruleData returns the user data of every rule of a table, by chain and in order.
// The user data contains the comment. The result is empty if the table is
// missing. It reads no expressions: the library fails on a conntrack expression
// with a direction (google/nftables 0.3.0 expects 4 bytes, and the kernel sends
// 1).
func (h *Handle) ruleData(t *nftables.Table) (map[string][][]byte, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(h.ns.File().Fd())})
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	defer conn.Close()
	filter, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE,
		Data: append([]byte(t.Name), 0)}})
	if err != nil {
		return nil, fmt.Errorf("list rules of %s: %w", t.Name, err)
	}
	list, err := nlutil.Retry(func() ([]netlink.Message, error) {
		return conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE,
				Flags: netlink.Request | netlink.Dump},
			Data: append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, filter...),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list rules of %s: %w", t.Name, err)
	}
	found := map[string][][]byte{}
	for _, m := range list {
		d, err := netlink.NewAttributeDecoder(m.Data[nfgenLen:])
		if err != nil {
			return nil, fmt.Errorf("read a rule of %s: %w", t.Name, err)
		}
		d.ByteOrder = binary.BigEndian
		var table, chain string
		var data []byte
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_RULE_TABLE:
				table = d.String()
			case unix.NFTA_RULE_CHAIN:
				chain = d.String()
			case unix.NFTA_RULE_USERDATA:
				data = d.Bytes()
			}
		}
		if err := d.Err(); err != nil {
			return nil, fmt.Errorf("read a rule of %s: %w", t.Name, err)
		}
		if table == t.Name {
			found[chain] = append(found[chain], data)
		}
	}
	return found, nil
}
