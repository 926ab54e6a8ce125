package rtnl

import (
	"fmt"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PortFlags are the settings of a bridge port that decide whether frames pass.
type PortFlags struct {
	// State is the port's spanning-tree state; frames pass only in the state
	// "forwarding".
	State string
	// Isolated ports do not reach each other.
	Isolated bool
	// Special names further settings that can block frames, e.g. "locked on" and
	// "flood off".
	Special []string
}

// Attributes of a bridge port (linux/if_link.h: IFLA_BRPORT_*).
const (
	portState     = 1
	portLearning  = 8
	portFlood     = 9
	portMulticast = 27
	portBroadcast = 30
	portSuppress  = 32
	portIsolated  = 33
	portLocked    = 39
)

// portStates are the names of the states by number (linux/if_bridge.h:
// BR_STATE_*).
var portStates = []string{"disabled", "listening", "learning", "forwarding", "blocking"}

// portFlags reads the settings of all bridge ports in the host's namespace, by the
// index of the link.
func (h *Reader) portFlags() (map[int]PortFlags, error) {
	messages, err := h.dumpLinks(unix.AF_BRIDGE)
	if err != nil {
		return nil, fmt.Errorf("list bridge ports: %w", err)
	}
	found := map[int]PortFlags{}
	for _, m := range messages {
		link := nl.DeserializeIfInfomsg(m)
		if info := nlutil.Attribute(m[link.Len():], unix.IFLA_PROTINFO); info != nil {
			f := PortFlags{State: portStates[3]}
			nlutil.Attributes(info, f.read)
			found[int(link.Index)] = f
		}
	}
	return found, nil
}

// dumpLinks returns the kernel's messages about the host's links; with AF_BRIDGE, about
// its bridge ports.
func (h *Reader) dumpLinks(family int) (messages [][]byte, err error) {
	err = h.ns.Do(func() error {
		messages, err = nlutil.Retry(func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
			request.AddData(nl.NewIfInfomsg(family))
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		return err
	})
	return messages, err
}

// read reads one attribute of a port.
func (f *PortFlags) read(kind uint16, of []byte) {
	if len(of) == 0 {
		return
	}
	value := of[0]
	off := map[uint16]string{portLearning: "learning off", portFlood: "flood off", portMulticast: "mcast_flood off",
		portBroadcast: "bcast_flood off"}
	on := map[uint16]string{portSuppress: "neigh_suppress on", portLocked: "locked on"}
	switch {
	case kind == portState && int(value) < len(portStates):
		f.State = portStates[value]
	case kind == portIsolated:
		f.Isolated = value != 0
	case value == 0 && off[kind] != "":
		f.Special = append(f.Special, off[kind])
	case value != 0 && on[kind] != "":
		f.Special = append(f.Special, on[kind])
	}
}
