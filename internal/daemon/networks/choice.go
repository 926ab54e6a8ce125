package networks

import (
	"cmp"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Hold is how long no rule must decide about a network's connections before ebpf is chosen
// again. Each way back to nft resets TCP connections.
const Hold = time.Minute

// retry is how long to wait before a choice that the host could not follow is applied again.
const retry = 5 * time.Second

// Choice is what translates the outbound connections of a network with outbound auto.
type Choice struct {
	// Why is the reason against ebpf; empty if ebpf is chosen.
	Why string
	// Until is when ebpf is chosen if no rule decides before; zero if there is a reason now.
	Until time.Time
	// failed means that the host has refused ebpf: another try needs a change of its rules.
	failed bool
	// unapplied is why the host could not follow; empty if it has. again is when the next try is due.
	unapplied string
	again     time.Time
}

// next returns the choice that follows from the host's rules at a time. why is their reason
// against ebpf. changed means that they have changed. hold is how long there must be no reason
// before ebpf is chosen again. The first choice follows the zero value.
func (c Choice) next(why string, changed bool, now time.Time, hold time.Duration) Choice {
	switch {
	case why != "":
		return Choice{Why: why, unapplied: c.unapplied, again: c.again}
	case c.Why == "", c.failed && !changed:
		return c
	case c.Until.IsZero():
		c.Until, c.failed = now.Add(hold), false
	}
	if now.Before(c.Until) {
		return c
	}
	return Choice{unapplied: c.unapplied, again: c.again}
}

// tried returns the choice after it was applied at a time, with the error.
func (c Choice) tried(at time.Time, err error) Choice {
	c.unapplied, c.again = "", time.Time{}
	if err != nil {
		c.unapplied, c.again = err.Error(), at.Add(retry)
	}
	return c
}

// Outbound returns the setting that has been chosen.
func (c Choice) Outbound() model.Outbound {
	if c.Why == "" {
		return model.OutboundEBPF
	}
	return model.OutboundNFT
}

// View returns the choice for users.
func (c Choice) View() api.OutboundChoice {
	v := api.OutboundChoice{Chosen: cmp.Or(string(c.Outbound()), "nft"), Why: c.Why, Until: c.Until}
	if c.unapplied != "" && c.unapplied != c.Why {
		v.Unapplied = c.unapplied
	}
	return v
}
