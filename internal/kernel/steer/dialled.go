package steer

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Dialled is where a socket of the host was led, and what it had dialled.
type Dialled struct{ To, Host netip.AddrPort }

// The layout of struct dialled in bpf/include/dialled.h, in bytes.
const (
	dialledSlots  = 4
	dialledFirst  = 4
	dialledSlot   = 36
	addressLength = 16
)

// DialledMap is the name of the socket storage.
const DialledMap = "dialled"

// Dialled returns the socket storage that holds it.
func (p *Plane) Dialled() *ebpf.Map { return p.maps[DialledMap] }

// ParseDialled reads a value of the socket storage; one of another length,
// such as none at all, holds nothing.
func ParseDialled(value []byte) []Dialled {
	if len(value) != dialledFirst+dialledSlots*dialledSlot {
		return nil
	}
	var all []Dialled
	for i := range dialledSlots {
		slot := value[dialledFirst+i*dialledSlot:]
		d := Dialled{To: dialledAt(slot, slot[2*addressLength:]), Host: dialledAt(slot[addressLength:], slot[2*addressLength+2:])}
		if d.To.Port() != 0 {
			all = append(all, d)
		}
	}
	return all
}

func dialledAt(address, port []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(address)).Unmap(), bits.ReverseBytes16(binary.NativeEndian.Uint16(port)))
}
