package provider

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairlead/internal/dockerapi"
)

// self is what this process knows of the container that it runs in.
//
// Theory of operation. An engine mounts files of its own at /etc/hosts and similar paths, from a
// directory that has the container's ID as its name. If the user has replaced all of them, the host
// name is the beginning of the ID by default. If the user has set that too, the addresses of the
// process's interfaces are those of the container. With the network mode container:ID, the files and
// the addresses are those of the other container, whose networks the process has.
type self struct {
	// ids are IDs of the container, or beginnings of it.
	ids []string
	// addresses are those of the interfaces, with their hardware addresses.
	addresses map[string]string
}

// newSelf reads what the process knows. It leaves out what it cannot read.
func newSelf() self {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	s := self{ids: mountedIDs(string(mounts)), addresses: map[string]string{}}
	if name, err := os.Hostname(); err == nil && len(name) >= dockerapi.ShortID {
		s.ids = append(s.ids, name)
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				s.addresses[p.Addr().String()] = i.HardwareAddr.String()
			}
		}
	}
	return s
}

// longID is the length of a container's ID. Its beginning is the host name by default.
const longID = 64

// engineFiles are the paths at which an engine mounts files of its own.
var engineFiles = []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}

// mountedIDs returns the IDs in the sources of the engine's files. The text is that of
// /proc/self/mountinfo, see proc_pid_mountinfo(5).
func mountedIDs(mountinfo string) (ids []string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !slices.Contains(engineFiles, fields[4]) {
			continue
		}
		for name := range strings.SplitSeq(fields[3], "/") {
			if len(name) == longID && strings.Trim(name, "0123456789abcdef") == "" && !slices.Contains(ids, name) {
				ids = append(ids, name)
			}
		}
	}
	return ids
}

// isNamed reports whether the process runs in the container with this ID.
func (s *self) isNamed(id string) bool {
	return slices.ContainsFunc(s.ids, func(begin string) bool { return strings.HasPrefix(id, begin) })
}

// has reports whether an address is the process's. Hardware is "" if it is not known; networks of
// several engines can have the same addresses.
func (s *self) has(address, hardware string) bool {
	own, ok := s.addresses[address]
	return ok && (hardware == "" || strings.EqualFold(own, hardware))
}

// in reports whether the process has an address of the container.
func (s *self) in(c *dockerapi.Inspected) bool {
	for _, at := range c.NetworkSettings.Networks {
		if s.has(at.IPAddress, at.MacAddress) || s.has(at.GlobalIPv6Address, at.MacAddress) {
			return true
		}
	}
	return false
}
