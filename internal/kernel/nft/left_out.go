package nft

import (
	"encoding/binary"
	"fmt"
	"slices"

	"fairlead/internal/kernel/rules"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// leftOut has the parts of chains and rules that the nftables library leaves out:
// the links of chains at ingress and egress, and expressions that it does not
// know.
type leftOut struct {
	links map[nftChain][]string
	exprs map[nftRule][]leftExpression
}

type nftChain struct {
	family      byte
	table, name string
}

type nftRule struct {
	nftChain
	handle uint64
}

// leftExpression is an expression with its index in the rule. If wrong, it
// replaces an expression that the library has read incompletely.
type leftExpression struct {
	at    int
	expr  expr.Any
	wrong bool
}

// libraryExpressions are the expressions that the library knows (exprFromName of
// google/nftables 0.3.0).
var libraryExpressions = []string{"ct", "range", "meta", "cmp", "counter", "objref", "payload", "lookup", "immediate",
	"bitwise", "redir", "nat",
	"limit", "quota", "dynset", "log", "exthdr", "match", "target", "connlimit", "queue", "flow_offload", "reject",
	"masq", "hash", "cthelper",
	"synproxy", "ctexpect", "secmark", "cttimeout", "fib", "numgen", "notrack"}

// readLeftOut reads the missing parts from the kernel's messages.
func (h *Handle) readLeftOut() (leftOut, error) {
	found := leftOut{links: map[nftChain][]string{}, exprs: map[nftRule][]leftExpression{}}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(h.ns.File().Fd())})
	if err != nil {
		return found, fmt.Errorf("open nftables: %w", err)
	}
	defer conn.Close()
	for kind, read := range map[int]func(family byte, d *netlink.AttributeDecoder){
		unix.NFT_MSG_GETCHAIN: found.readChain, unix.NFT_MSG_GETRULE: found.readRule,
	} {
		list, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
				Flags: netlink.Request | netlink.Dump},
			Data: []byte{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, 0},
		})
		if err != nil {
			return found, fmt.Errorf("list nftables: %w", err)
		}
		for _, m := range list {
			d, err := netlink.NewAttributeDecoder(m.Data[nfgenLen:])
			if err != nil {
				return found, fmt.Errorf("read nftables: %w", err)
			}
			d.ByteOrder = binary.BigEndian
			if read(m.Data[0], d); d.Err() != nil {
				return found, fmt.Errorf("read nftables: %w", d.Err())
			}
		}
	}
	return found, nil
}

// Attributes that x/sys/unix lacks (linux/netfilter/nf_tables.h).
const (
	tableDormant = 1 // NFT_TABLE_F_DORMANT
	hookDevices  = 4 // NFTA_HOOK_DEVS
	deviceName   = 1 // NFTA_DEVICE_NAME
)

func (f leftOut) readChain(family byte, d *netlink.AttributeDecoder) {
	c := nftChain{family: family}
	var links []string
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_CHAIN_TABLE:
			c.table = d.String()
		case unix.NFTA_CHAIN_NAME:
			c.name = d.String()
		case unix.NFTA_CHAIN_HOOK:
			d.Nested(func(hook *netlink.AttributeDecoder) error {
				for hook.Next() {
					switch hook.Type() {
					case unix.NFTA_HOOK_DEV:
						links = append(links, hook.String())
					case hookDevices:
						hook.Nested(func(devices *netlink.AttributeDecoder) error {
							for devices.Next() {
								if devices.Type() == deviceName {
									links = append(links, devices.String())
								}
							}
							return nil
						})
					}
				}
				return nil
			})
		}
	}
	slices.Sort(links)
	f.links[c] = slices.Compact(links)
}

func (f leftOut) readRule(family byte, d *netlink.AttributeDecoder) {
	r := nftRule{nftChain: nftChain{family: family}}
	var all []leftExpression
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_RULE_TABLE:
			r.table = d.String()
		case unix.NFTA_RULE_CHAIN:
			r.name = d.String()
		case unix.NFTA_RULE_HANDLE:
			r.handle = d.Uint64()
		case unix.NFTA_RULE_EXPRESSIONS:
			d.Nested(func(list *netlink.AttributeDecoder) error {
				for at := 0; list.Next(); at++ {
					list.Nested(func(e *netlink.AttributeDecoder) error {
						if left, wrong := readLeftOutExpression(e); left != nil {
							all = append(all, leftExpression{at, left, wrong})
						}
						return nil
					})
				}
				return nil
			})
		}
	}
	if all != nil {
		f.exprs[r] = all
	}
}

// readLeftOutExpression returns an expression that the library leaves out or, if
// wrong, reads incompletely. It returns nil for all others.
func readLeftOutExpression(d *netlink.AttributeDecoder) (left expr.Any, wrong bool) {
	name := ""
	numbers := map[uint16]uint32{}
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_EXPR_NAME:
			name = d.String()
		case unix.NFTA_EXPR_DATA:
			if name != "byteorder" && name != "ct" {
				continue
			}
			d.Nested(func(data *netlink.AttributeDecoder) error {
				for data.Next() {
					if len(data.Bytes()) == 4 {
						numbers[data.Type()] = data.Uint32()
					}
				}
				return nil
			})
		}
	}
	switch {
	case name == "byteorder":
		return &expr.Byteorder{SourceRegister: numbers[unix.NFTA_BYTEORDER_SREG],
			DestRegister: numbers[unix.NFTA_BYTEORDER_DREG], Size: numbers[unix.NFTA_BYTEORDER_SIZE]}, false
	case name == "ct" && numbers[unix.NFTA_CT_SREG] != 0:
		return &expr.Ct{Key: expr.CtKey(numbers[unix.NFTA_CT_KEY]), Register: numbers[unix.NFTA_CT_SREG],
			SourceRegister: true}, true
	case slices.Contains(libraryExpressions, name):
		return nil, false
	}
	return rules.Opaque(name), false
}

// complete inserts the missing expressions into a rule that the library has read.
func (f leftOut) complete(family byte, r *nftables.Rule) {
	for _, p := range f.exprs[nftRule{nftChain{family, r.Table.Name, r.Chain.Name}, r.Handle}] {
		if p.wrong && p.at < len(r.Exprs) {
			r.Exprs[p.at] = p.expr
			continue
		}
		r.Exprs = slices.Insert(r.Exprs, min(p.at, len(r.Exprs)), p.expr)
	}
}
