package nft

import (
	"encoding/binary"
	"errors"
	"testing"

	"fairlead/internal/kernel/kerneltest"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestDumpsAreWhole reads a chain whose rules another program changes meanwhile. Each of
// its transactions leaves the number of rules as it was.
func TestDumpsAreWhole(t *testing.T) {
	h := openTest(t)
	kerneltest.Run(t, h.ns, "nft", "add table ip o; add chain ip o c")
	other, err := Open(h.rtnl)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o := &nftables.Table{Name: "o", Family: nftables.TableFamilyIPv4}
	const count = 4000
	b := other.begin()
	for range count {
		b.addRule(o, "c", []expr.Any{&expr.Counter{}}, "a rule")
	}
	if err := b.commit(); err != nil {
		t.Fatal(err)
	}
	list, err := h.nft.rules(nftables.TableFamilyIPv4, "o", "c")
	if err != nil || len(list) != count {
		t.Fatalf("the chain is read as %d rules, %v", len(list), err)
	}
	first, last := list[0].handle, list[count-1].handle
	replace := func() error { // the first rule with one at the end
		b := other.begin()
		b.step(unix.NFT_MSG_DELRULE, toDrop, o, "c", func() {
			b.attr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, first))
		})
		b.addRule(o, "c", []expr.Any{&expr.Counter{}}, "a rule")
		first, last = first+1, last+1
		return b.commit()
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := replace(); err != nil {
				ended <- err
				return
			}
		}
	}()
	whole, noticed := 0, 0
	for range 20 {
		_, err := h.nft.Request(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP,
			request(nftables.TableFamilyIPv4, "o", "c"))
		if errors.Is(err, nl.ErrDumpInterrupted) {
			noticed++
		}
		list, err := h.nft.rules(nftables.TableFamilyIPv4, "o", "c")
		switch {
		case errors.Is(err, nl.ErrDumpInterrupted):
		case err != nil:
			t.Fatal(err)
		case len(list) != count:
			t.Fatalf("a torn dump is accepted: %d of %d rules", len(list), count)
		default:
			whole++
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d of 20 reads are whole, %d dumps were interrupted", whole, noticed); noticed == 0 {
		t.Error("no interrupted dump is noticed")
	}
	if list, err = h.nft.rules(nftables.TableFamilyIPv4, "o", "c"); err != nil || len(list) != count {
		t.Errorf("without changes the chain is read as %d rules, %v", len(list), err)
	}
}
