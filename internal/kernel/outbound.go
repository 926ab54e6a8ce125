package kernel

import (
	"context"
	"fmt"
	"strings"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"
)

// Deciders returns for each path why outbound connections must not bypass the rules of the
// host: a rule of another program would decide about them, or the programs cannot translate
// them. There is no reason if they may. Deciders reads all rules of the host, and may wait for a
// program of iptables, and until patience ends while nftables change all the time.
func (h *Host) Deciders(patience context.Context, paths []rules.Path) ([]rules.Reason, error) {
	all, unread, err := nft.PatientRuleset(patience, h.nft)
	if err != nil {
		return nil, err
	}
	why := make([]rules.Reason, len(paths))
	refused := h.ns.Do(ebpf.CheckOutbound)
	program := h.hooks.find()
	return why, h.withUplinks(func(names []string) error {
		for i, path := range paths {
			switch path.Uplinks = names; {
			case refused != nil:
				why[i].Text = refused.Error()
			case len(unread) > 0:
				why[i].Text = fmt.Sprint("some rules could not be read: ", strings.Join(unread, "; "))
			case program != "":
				why[i].Text = program
			default:
				why[i] = all.Decides(path, plan.Mark)
			}
		}
		return nil
	})
}

// unreported describes what Deciders reads of which the kernel sends no messages.
func (h *Host) unreported() string {
	v4, err4 := h.iptables.LegacyHash(true)
	v6, err6 := h.iptables.LegacyHash(false)
	frames := ""
	refused := h.ns.Do(func() error {
		frames = nft.LegacyFrames()
		return ebpf.CheckOutbound()
	})
	return fmt.Sprint(v4, err4, v6, err6, frames, refused, h.hooks.find())
}
