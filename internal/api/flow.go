package api

import (
	"net/netip"

	"fairlead/internal/model"
)

// FlowQuestion asks the node of a cluster that has the destination for the rest of a packet's path.
type FlowQuestion struct {
	Proto       model.Proto    `json:"proto"`
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
}

// FlowPart is the part of a packet's path on another node, as that node reports it.
type FlowPart struct {
	// Node is the name of the node. Problem is why its steps are not known; empty if they are.
	Node    string `json:"node"`
	Problem string `json:"problem,omitempty"`
	// Steps are what happens to the packet there. Outcome and Verdict are how it ends.
	Steps   []FlowStep `json:"steps,omitempty"`
	Outcome string     `json:"outcome,omitempty"`
	Verdict string     `json:"verdict,omitempty"`
	// Caveats are the reasons why the verdict is not certain.
	Caveats []string `json:"caveats,omitempty"`
}

// FlowStep is one thing that happens to a packet: where, what, and the route, rule or program that decides.
type FlowStep struct {
	Where   string `json:"where"`
	Link    string `json:"link,omitempty"`
	What    string `json:"what"`
	By      string `json:"by,omitempty"`
	Program string `json:"program,omitempty"`
	Why     string `json:"why,omitempty"`
}
