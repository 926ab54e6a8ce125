package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// A transaction that replaces a table is not atomic for a packet that is being handled meanwhile. Each base chain, and
// each lookup in a set, uses the rules that are current at that moment (nft_do_chain, nft_set_elem_active in the
// kernel). The new chain of a hook comes before the old one. So the first packet of a connection can pass the new chain
// before the commit and the old one after it, and neither has rules for it: the connection is not translated, and the
// host refuses it. Therefore a table that is replaced has a stand-in meanwhile: another table with the same chains of
// NAT. NAT applies to a connection only once, so it does not matter which of the tables translates it. Packets may pass
// the other chains twice or not at all; that has no effect on a connection that is allowed.

// standInSuffix ends the name of a stand-in, after the name of its table.
const standInSuffix = "-replaced"

func standInOf(t *nftables.Table) *nftables.Table {
	return &nftables.Table{Name: t.Name + standInSuffix, Family: t.Family}
}

// exists reports whether the host has the table.
func (h *Handle) exists(t *nftables.Table) (bool, error) {
	err := h.nft.find(t)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// standIn makes stand-ins for the tables that the steps replace. end removes them.
func (h *Handle) standIn(elements elementSteps, services serviceOps) (end func() error, err error) {
	replaced := map[*nftables.Table]*bool{table().Table: &elements.makeTable, serviceTable().Table: &services.makeTable}
	some := false
	for t, makes := range replaced {
		if !*makes {
			continue
		}
		is, err := h.exists(t)
		if err != nil {
			return nil, fmt.Errorf("read nft table %s: %w", t.Name, err)
		}
		*makes = is
		some = some || is
	}
	if !some {
		return func() error { return nil }, nil
	}
	if !elements.makeTable {
		elements = elementSteps{}
	}
	if !services.makeTable {
		services = serviceOps{}
	}
	end = func() error {
		b := h.begin()
		b.dropTable(standInOf(table().Table))
		b.dropTable(standInOf(serviceTable().Table))
		if err := b.commit(); err != nil {
			return fmt.Errorf("remove the stand-ins of nft tables: %w", err)
		}
		return nil
	}
	if _, _, err := h.carryOut(true, elements, services); err != nil {
		return nil, errors.Join(fmt.Errorf("make a stand-in of an nft table: %w", err), end())
	}
	return end, nil
}
