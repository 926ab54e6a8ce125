package nft

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

// batch is an nftables transaction in its netlink form. The kernel applies all of
// its steps or none. The steps use the types of the nftables library. This code
// writes the messages because the library cannot write a map's user data for
// nft(8) or the original addresses of a flow, and because it allocates memory for
// each of tens of thousands of elements.
type batch struct {
	h *Handle
	messages
	sets uint32
	err  error
	// standsIn makes the steps change the stand-ins of their tables (standInOf). leftOut are the chains that a stand-in
	// does not have, by their tables.
	standsIn bool
	leftOut  map[[2]string]bool
}

// begin begins a transaction. All that it creates has Fairlead's mark in its name
// or comment.
func (h *Handle) begin() *batch {
	b := &batch{h: h, leftOut: map[[2]string]bool{}}
	b.edge(unix.NFNL_MSG_BATCH_BEGIN)
	return b
}

// The flags of messages.
const (
	toMake = unix.NLM_F_REQUEST | unix.NLM_F_CREATE
	toAdd  = unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_APPEND
	toDrop = unix.NLM_F_REQUEST
)

// edge begins or ends the transaction.
func (b *batch) edge(kind uint16) {
	b.message(kind, unix.NLM_F_REQUEST, [nfgenLen]byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}, func() {})
}

// step adds a message about a table, or about the chain or set in it with the
// given name. The attribute of the table's name has the same number in all
// messages. So have those of a set's name, a rule's chain and an element's set.
func (b *batch) step(kind, flags uint16, t *nftables.Table, name string, body func()) {
	if b.standsIn {
		t = standInOf(t)
	}
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, [nfgenLen]byte{byte(t.Family), unix.NFNETLINK_V0}, func() {
		b.text(unix.NFTA_TABLE_NAME, t.Name)
		switch {
		case name == "":
		case kind == unix.NFT_MSG_NEWCHAIN, kind == unix.NFT_MSG_DELCHAIN:
			b.text(unix.NFTA_CHAIN_NAME, name)
		default:
			b.text(unix.NFTA_SET_NAME, name)
		}
		body()
	})
}

func nothing() {}

func (b *batch) addTable(t *nftables.Table) { b.step(unix.NFT_MSG_NEWTABLE, toMake, t, "", nothing) }

func (b *batch) delTable(t *nftables.Table) { b.step(unix.NFT_MSG_DELTABLE, toDrop, t, "", nothing) }

// replaceTable deletes the table if it exists, and creates it again.
func (b *batch) replaceTable(t *nftables.Table) {
	b.dropTable(t)
	b.addTable(t)
}

// makeTable creates a table with its content; it replaces an existing one.
func (b *batch) makeTable(d definition) {
	b.replaceTable(d.Table)
	for _, s := range d.sets {
		b.addSet(s)
		b.addElements(s, d.elements[s.Name])
	}
	b.addChains(d)
}

// dropTable deletes the table if it exists.
func (b *batch) dropTable(t *nftables.Table) {
	b.addTable(t)
	b.delTable(t)
}

// addChain adds the chain. A base chain has the policy accept. A stand-in gets no base chain but those of NAT.
func (b *batch) addChain(t *nftables.Table, ch chain) {
	if b.standsIn && ch.hook != nil && ch.kind != nftables.ChainTypeNAT {
		b.leftOut[[2]string{t.Name, ch.name}] = true
		return
	}
	b.step(unix.NFT_MSG_NEWCHAIN, toMake, t, ch.name, func() {
		if ch.hook != nil {
			b.nest(unix.NFTA_CHAIN_HOOK, func() {
				b.number(unix.NFTA_HOOK_HOOKNUM, uint32(*ch.hook))
				b.number(unix.NFTA_HOOK_PRIORITY, uint32(ch.prio))
			})
			b.number(unix.NFTA_CHAIN_POLICY, uint32(nftables.ChainPolicyAccept))
			b.text(unix.NFTA_CHAIN_TYPE, string(ch.kind))
		}
	})
}

func (b *batch) flushChain(t *nftables.Table, name string) {
	b.step(unix.NFT_MSG_DELRULE, toDrop, t, name, nothing)
}

func (b *batch) delChain(t *nftables.Table, name string) {
	b.step(unix.NFT_MSG_DELCHAIN, toDrop, t, name, nothing)
}

// addRule appends a rule with a comment.
func (b *batch) addRule(t *nftables.Table, chain string, exprs []expr.Any, comment string) {
	if b.leftOut[[2]string{t.Name, chain}] {
		return
	}
	b.step(unix.NFT_MSG_NEWRULE, toAdd, t, chain, func() {
		b.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			for _, e := range exprs {
				if o, ok := e.(interface{ write(*messages) }); ok {
					b.nest(unix.NFTA_LIST_ELEM, func() { o.write(&b.messages) })
					continue
				}
				data, err := expr.Marshal(byte(t.Family), e)
				b.err = errors.Join(b.err, err)
				b.attr(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, data)
			}
		})
		b.attr(unix.NFTA_RULE_USERDATA, userdata.AppendString(nil, userdata.TypeComment, comment))
	})
}

// addChains adds all chains first and then their rules, which may jump to any of
// them. The comment of every rule is the mark.
func (b *batch) addChains(d definition) {
	for _, ch := range d.chains {
		b.addChain(d.Table, ch)
	}
	for _, ch := range d.chains {
		for _, exprs := range ch.rules {
			b.addRule(d.Table, ch.name, exprs, plan.Mark)
		}
	}
}

// commit sends the transaction to the kernel and returns the kernel's error. The
// kernel has then applied all of it or nothing.
func (b *batch) commit() error {
	if b.last == 0 { // only the beginning
		return nil
	}
	return b.send(b.h.nftConn)
}

// send sends the transaction on a connection, and returns the kernel's error.
func (b *batch) send(c *netlink.Conn) error {
	if b.err != nil {
		return fmt.Errorf("build nftables: %w", b.err)
	}
	// The kernel answers each message that fails. With this flag it also answers
	// the last message if that succeeds.
	flags := b.buf[b.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	b.edge(unix.NFNL_MSG_BATCH_END)
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = exchange(int(fd), b.buf) })
	return errors.Join(failed, err)
}

// exchange sends a transaction and reads the kernel's answers, all of which exist
// when the send call returns. It returns the first failure: that is the reason
// why the kernel refused the transaction.
func exchange(fd int, data []byte) error {
	for {
		err := unix.Sendto(fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("send to nftables: %w", err)
		}
	}
	var first error
	answer, answers := make([]byte, 64<<10), 0
	for {
		n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && answers > 0:
			return first
		case err != nil && first == nil:
			return fmt.Errorf("nftables does not answer: %w", err)
		case err != nil:
			return first
		}
		answers++
		if code := failure(answer[:n]); code != 0 && first == nil {
			first = code
		}
	}
}

// failure returns the error in an answer, 0 if there is none.
func failure(answer []byte) unix.Errno {
	if len(answer) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
}
