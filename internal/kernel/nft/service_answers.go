package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The conntrack keys of the original destination address of one family
// (linux/netfilter/nf_tables.h, Linux 4.17).
const (
	ctDstIP  = 20
	ctDstIP6 = 22
)

// dropNewTable deletes the table if this transaction has created it.
func (h *Handle) dropNewTable(made bool) error {
	if !made {
		return nil
	}
	b := h.begin()
	b.dropTable(serviceTable())
	return b.commit()
}

// openedTo returns the rules that look up a flow in the map by its original
// destination and its translated one. The original port comes last in the key:
// nft(8) cannot read `ct original proto-dst` before a word that states the
// protocol.
func openedTo(only []expr.Any, in string) (rules [][]expr.Any) {
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, f := range families {
			words, at := f.addrLen/4, uint32(unix.NFT_REG32_00)
			dst := original{key: ctDstIP, register: reg1}
			if f.nfproto == unix.NFPROTO_IPV6 {
				dst.key = ctDstIP6
			}
			rules = append(rules, rule(only, f.is(), isProto(proto), []expr.Any{dst},
				meta(expr.MetaKeyL4PROTO, at+words),
				f.load(f.dst, at+words+1), payload(expr.PayloadBaseTransportHeader, 2, 2, at+2*words+1),
				[]expr.Any{original{key: uint32(expr.CtKeyPROTODST), register: at + 2*words + 2}},
				verdictIn(in+f.suffix)))
		}
	}
	return rules
}

// original is an expression that loads a field of the flow's original direction
// from conntrack. The library supports neither a direction nor an address of one
// family (google/nftables 0.3.0).
type original struct {
	expr.Any
	key, register uint32
}

func (o original) write(m *messages) {
	m.text(unix.NFTA_EXPR_NAME, "ct")
	m.nest(unix.NFTA_EXPR_DATA, func() {
		m.number(unix.NFTA_CT_KEY, o.key)
		m.number(unix.NFTA_CT_DREG, o.register)
		m.attr(unix.NFTA_CT_DIRECTION, []byte{0}) // IP_CT_DIR_ORIGINAL
	})
}
