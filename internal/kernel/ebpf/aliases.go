package ebpf

import (
	"fmt"
	"os"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// portRange are ports in the host's byte order.
type portRange struct{ first, last int }

func (r portRange) count() int { return r.last - r.first + 1 }

// unprivileged are the ports that clients use.
var unprivileged = portRange{1024, 65535}

// fewAliases is the smallest number of ports that is enough for aliases.
const fewAliases = 4096

// localPorts returns the ports from which the host connects
// (net.ipv4.ip_local_port_range). The calling thread must be in the host's network
// namespace.
func localPorts() (r portRange, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return r, fmt.Errorf("read the host's local ports: %w", err)
	}
	if _, err = fmt.Sscan(string(text), &r.first, &r.last); err != nil {
		return r, fmt.Errorf("read the host's local ports from %q: %w", text, err)
	}
	return r, nil
}

// aliasPorts returns the ports of aliases on a host that connects from these ports: the
// larger range beside them. If both are small, it returns the lower half of all ports,
// which are shared with the host's connections.
func aliasPorts(local portRange) (ports portRange, shared bool) {
	below := portRange{unprivileged.first, min(local.first, unprivileged.last+1) - 1}
	above := portRange{max(local.last, unprivileged.first-1) + 1, unprivileged.last}
	switch {
	case max(below.count(), above.count()) < fewAliases:
		return portRange{unprivileged.first, 32767}, true
	case above.count() > below.count():
		return above, false
	}
	return below, false
}

// setAliases sets the ports of aliases in programs for a host that connects from these
// ports.
func setAliases(spec *ebpf.CollectionSpec, local portRange) error {
	ports, shared := aliasPorts(local)
	for name, value := range map[string]any{
		bpf.FairleadVarAliasFirst: uint32(ports.first), bpf.FairleadVarAliasCount: uint32(ports.count()),
		bpf.FairleadVarAliasesShared: boolByte(shared),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
