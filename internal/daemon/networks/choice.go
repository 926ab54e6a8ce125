package networks

import "fairlead/internal/model"

// Choice is what translates the outbound connections of a network with outbound auto.
type Choice struct {
	// Why is the reason against ebpf; empty if ebpf is chosen.
	Why string
	// failed means that the host has refused ebpf: another try needs a change of its rules.
	failed bool
}

// Outbound returns the setting that has been chosen.
func (c Choice) Outbound() model.Outbound {
	if c.Why == "" {
		return model.OutboundEBPF
	}
	return model.OutboundNFT
}

// String describes the choice.
func (c Choice) String() string {
	if c.Why == "" {
		return "outbound ebpf: no rule of the host would decide about the connections"
	}
	return "outbound nft: " + c.Why
}
