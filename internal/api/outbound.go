package api

import (
	"fmt"
	"time"
)

// OutboundChoice is what translates the outbound connections of a network with outbound auto.
type OutboundChoice struct {
	// Chosen is nft or ebpf.
	Chosen string `json:"chosen"`
	// Why is the reason against ebpf; empty if ebpf is chosen.
	Why string `json:"why,omitempty"`
	// Until is when ebpf is chosen if no rule decides before. It is zero if there is a reason
	// against it now. Why is then the last reason.
	Until time.Time `json:"until,omitzero"`
	// Unapplied is why the host has not followed the choice; empty if it has. It is tried again.
	Unapplied string `json:"unapplied,omitempty"`
}

// String describes the choice.
func (c OutboundChoice) String() string {
	if c.Unapplied != "" {
		return c.chosen() + "; the host has not followed, so connections may still bypass its rules: " + c.Unapplied
	}
	return c.chosen()
}

// chosen describes the choice without what became of it.
func (c OutboundChoice) chosen() string {
	switch {
	case c.Why == "":
		return "outbound ebpf: no rule of the host would decide about the connections"
	case c.Until.IsZero():
		return "outbound nft: " + c.Why
	}
	return fmt.Sprintf("outbound nft: no rule decides now; ebpf is chosen at %s if none does until then; before: %s",
		c.Until.Local().Format(time.DateTime), c.Why)
}
