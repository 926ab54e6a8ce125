package load

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The source ports of live flows: all that need no privilege.
const (
	firstFlowPort = 1024
	flowPorts     = 1<<16 - firstFlowPort
)

// openFlows sends one datagram from each of so many sources. A path that
// remembers flows remembers them from then on; the sockets are closed at once,
// one after the other, so that their number is bounded by no limit on open
// files. Nobody answers: a flow must not cost more than being remembered.
func (j *job) openFlows(target netip.AddrPort) error {
	to, err := sockaddr(target)
	if err != nil {
		return err
	}
	datagram := make([]byte, stampSize) // of no run: its token is zero
	for i := range j.spec.Flows {
		addr := j.spec.FlowAddrs[i/flowPorts]
		if err := sendFrom(netip.AddrPortFrom(addr, uint16(firstFlowPort+i%flowPorts)), to, datagram); err != nil {
			return fmt.Errorf("open flow %d to %s: %w", i+1, target, err)
		}
	}
	return nil
}

func sendFrom(source netip.AddrPort, to unix.Sockaddr, datagram []byte) error {
	fd, err := bind(source, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, datagram, 0, to)
}
