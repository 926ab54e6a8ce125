package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// These chains know flows by where they were opened to.
const (
	chainAnswers = "postrouting"
	chainOpened  = "opened"
)

// The keys of the original addresses of one family, of
// linux/netfilter/nf_tables.h (Linux 4.17).
const (
	ctDstIP  = 20
	ctDstIP6 = 22
)

// makeServiceTable makes the skeleton in the place of one that may be there. The
// library has no form of `ct original ip daddr`, so the rules with that are
// written here, in a transaction of their own, before there is a service.
func (h *Host) makeServiceTable() error {
	t := serviceTable()
	h.nft.AddTable(t) // so that deleting succeeds whether or not it is there
	h.nft.DelTable(t)
	if err := queueChains(h.nft, t, sharedSets(), serviceChains()); err != nil {
		return err
	}
	if err := h.nft.Flush(); err != nil {
		return err
	}
	err := h.addAnswerRules()
	if err != nil {
		err = errors.Join(err, h.dropNewTable(true))
	}
	return err
}

// dropNewTable takes the table away again if it is new.
func (h *Host) dropNewTable(made bool) error {
	if !made {
		return nil
	}
	h.nft.DelTable(serviceTable())
	return h.nft.Flush()
}

func (h *Host) addAnswerRules() error {
	edge := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: []byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	batch := []netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, f := range families {
			answer, err := openedTo(chainAnswers, dnatted(), proto, f, plan.MapAnswers)
			keep, failed := openedTo(chainOpened, nil, proto, f, plan.MapPersistent)
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			batch = append(batch, answer, keep)
		}
	}
	if _, err := h.nftConn.SendMessages(append(batch, edge(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}
	var errs []error
	for range len(batch) - 1 {
		_, err := h.nftConn.Receive()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// openedTo is the netlink form of a rule of plan.ServiceTableText that looks a
// flow of the protocol up in a map.
func openedTo(chain string, only []expr.Any, proto byte, f family, in string) (m netlink.Message, err error) {
	words, at := f.addrLen/4, uint32(unix.NFT_REG32_00)
	dst := uint32(ctDstIP)
	if f.nfproto == unix.NFPROTO_IPV6 {
		dst = ctDstIP6
	}
	var exprs []netlink.Attribute
	add := func(all ...expr.Any) {
		for _, e := range all {
			data, failed := expr.Marshal(unix.NFPROTO_INET, e)
			err = errors.Join(err, failed)
			exprs = append(exprs, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
		}
	}
	original := func(key, register uint32) {
		data, failed := originalOf(key, register)
		err = errors.Join(err, failed)
		exprs = append(exprs, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
	}
	add(rule(only, isProto(proto), f.is())...)
	original(dst, reg1)
	add(meta(expr.MetaKeyL4PROTO, at+words)...)
	original(uint32(expr.CtKeyPROTODST), at+words+1)
	add(rule(f.load(f.dst, at+words+2), payload(expr.PayloadBaseTransportHeader, 2, 2, at+2*words+2), verdictIn(in+f.suffix))...)
	list, failed := netlink.MarshalAttributes(exprs)
	body, failed2 := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(plan.ServicesTable + "\x00")},
		{Type: unix.NFTA_RULE_CHAIN, Data: []byte(chain + "\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: list},
		{Type: unix.NFTA_RULE_USERDATA, Data: userdata.AppendString(nil, userdata.TypeComment, plan.Mark)},
	})
	if err = errors.Join(err, failed, failed2); err != nil {
		return m, fmt.Errorf("build a rule of %s: %w", chain, err)
	}
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Append},
		Data:   append([]byte{byte(nftables.TableFamilyINet), unix.NFNETLINK_V0, 0, 0}, body...),
	}, nil
}

// originalOf is the expression that loads something of how the flow was opened.
func originalOf(key, register uint32) ([]byte, error) {
	data, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_CT_KEY, Data: binary.BigEndian.AppendUint32(nil, key)},
		{Type: unix.NFTA_CT_DREG, Data: binary.BigEndian.AppendUint32(nil, register)},
		{Type: unix.NFTA_CT_DIRECTION, Data: []byte{0}}, // IP_CT_DIR_ORIGINAL
	})
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_EXPR_NAME, Data: []byte("ct\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_EXPR_DATA, Data: data},
	})
}
