package nft

import (
	"encoding/binary"
	"net/netip"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func noTrackTable(u plan.NoTrack) *nftables.Table {
	return &nftables.Table{Name: u.Table(), Family: nftables.TableFamilyINet}
}

// noTrackChains returns the table's chains, the same as plan.NoTrack.Add prints.
func noTrackChains(u plan.NoTrack) []chain {
	number := binary.BigEndian.AppendUint16(nil, u.Port)
	ports := rule(meta(expr.MetaKeyL4PROTO, reg1), equal([]byte{unix.IPPROTO_UDP}))
	if u.Both {
		ports = rule(ports, payload(expr.PayloadBaseTransportHeader, 0, 2, reg1), equal(number))
	}
	ports = rule(ports, payload(expr.PayloadBaseTransportHeader, 2, 2, reg1), equal(number))
	notrack := []expr.Any{&expr.Notrack{}}
	return []chain{
		{"in", nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, nftables.ChainTypeFilter,
			[][]expr.Any{rule(ports, forHost(u.Local), notrack)}},
		{"out", nftables.ChainHookOutput, nftables.ChainPriorityRaw, nftables.ChainTypeFilter,
			[][]expr.Any{rule(ports, notrack)}},
	}
}

// forHost matches packets to the address, or, if it is not valid, to the host's addresses and its multicast groups.
func forHost(local netip.Addr) []expr.Any {
	if local.IsValid() {
		f := familyOf(local)
		return rule(f.is(), f.load(f.dst, reg1), equal(local.AsSlice()))
	}
	return []expr.Any{ // forwarded packets have an address of type unicast
		&expr.Fib{Register: reg1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_UNICAST)}}
}

// SetNoTrack creates the table in one transaction; it replaces a damaged one.
func (h *Handle) SetNoTrack(u plan.NoTrack) error {
	return h.change(func(b *batch) { b.makeTable(noTrackTable(u), nil, noTrackChains(u)) })
}

// DelNoTrack deletes the no track.
func (h *Handle) DelNoTrack(u plan.NoTrack) error { return h.drop(noTrackTable(u)) }

// ReadNoTrack returns u if its table exists and is complete.
func (h *Handle) ReadNoTrack(u plan.NoTrack) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	whole, err := h.nft.readWhole(noTrackTable(u), noTrackChains(u))
	if err != nil || !whole {
		return nil, err
	}
	return u, nil
}

// LeftoverNoTrack returns Fairlead's no-track tables that are in no plan.
func (h *Handle) LeftoverNoTrack(known map[string]bool) (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	tables, err := h.nft.tables(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	var found plan.Plan
	for _, t := range tables {
		if u, ours := plan.NoTrackOf(t.Name); ours && !known[u.Key()] {
			found = append(found, u)
		}
	}
	return found, nil
}
