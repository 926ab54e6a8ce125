package load

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The source ports of live flows: all unprivileged ports.
const (
	firstFlowPort = 1024
	flowPorts     = 1<<16 - firstFlowPort
)

// openFlows sends one datagram from each of many sources, so that a path with
// flow state has an entry for each. Every socket is closed before the next is
// opened, so the limit on open files does not matter. The server does not answer,
// so that a flow costs no more than its entry.
func (j *job) openFlows(target netip.AddrPort) error {
	to, err := sockaddr(target)
	if err != nil {
		return err
	}
	datagram := make([]byte, stampSize) // token zero: not part of a run
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
