package member

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Link is a link of the host.
type Link struct {
	// Hardware is its hardware address, and Permanent that of the device. Each can be empty.
	Hardware, Permanent net.HardwareAddr
	Addresses           []netip.Addr
}

// machineID is the form of a valid machine ID (machine-id(5)).
var machineID = regexp.MustCompile("^[0-9a-f]{32}$")

// Machine returns what identifies the machine whose files are below root, usually "/": its machine ID and, if the
// firmware has one, the UUID of the machine, which a hypervisor gives to each virtual machine. It is empty without a
// machine ID, because all containers of a machine have the same UUID.
func Machine(root string) string {
	id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	text := strings.TrimSpace(string(id))
	if err != nil || !machineID.MatchString(text) {
		return ""
	}
	if uuid, err := os.ReadFile(filepath.Join(root, "sys/class/dmi/id/product_uuid")); err == nil {
		text += " " + strings.ToLower(strings.TrimSpace(string(uuid)))
	}
	return text
}

// hashed returns the hash of an identity: the other nodes do not learn the identity itself.
func hashed(identity []byte) string {
	sum := sha256.Sum256(identity)
	return hex.EncodeToString(sum[:8])
}

// isHardware reports whether a link's address is one of hardware: of Ethernet (6 bytes), EUI-64 (8) or InfiniBand
// (20). Links of tunnels have their IP addresses there, and loopback has zeros.
func isHardware(mac net.HardwareAddr) bool {
	return (len(mac) == 6 || len(mac) == 8 || len(mac) == 20) &&
		slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// hardware returns the hashes of the devices' permanent hardware addresses, and of those of the links that have the
// node's addresses: links without a device have no other. A host without any that has all of the node's addresses has
// the hash of its machine instead. Beside hardware addresses the machine does not count, because copies of a machine
// or container often have the same machine ID.
func (h host) hardware(addresses []netip.Addr) (all []string) {
	add := func(mac net.HardwareAddr) {
		if isHardware(mac) {
			all = append(all, hashed(mac))
		}
	}
	for _, l := range h.links {
		add(l.Permanent)
		if slices.ContainsFunc(l.Addresses, func(a netip.Addr) bool { return slices.Contains(addresses, a) }) {
			add(l.Hardware)
		}
	}
	if len(all) == 0 && h.machine != "" && h.links != nil && len(h.missing(addresses)) == 0 {
		return []string{hashed([]byte("machine " + h.machine))}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxHardware)]
}

func shareHardware(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}

// addresses returns those of the host's links, except for loopback and link-local ones.
func (h host) addresses() (all []netip.Addr) {
	for _, l := range h.links {
		for _, a := range l.Addresses {
			if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
				all = append(all, a)
			}
		}
	}
	return all
}

// missing returns the addresses that the host does not have. It has all while its links are not known.
func (h host) missing(addresses []netip.Addr) []netip.Addr {
	if h.links == nil {
		return nil
	}
	have := h.addresses()
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return slices.Contains(have, a) })
}

// shown returns some of the host's addresses as a text.
func (h host) shown() string {
	all := h.addresses()
	if len(all) == 0 {
		return "none"
	}
	return listed(all[:min(len(all), maxShown)])
}

func listed(addresses []netip.Addr) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}
