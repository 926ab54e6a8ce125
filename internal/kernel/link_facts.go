package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/safchain/ethtool"
)

// LinkFacts describe a link of this process's network namespace, as far as it matters
// for measurements.
type LinkFacts struct {
	Name, Driver string
	MTU          int
	// Speed is in bit/s; 0 if the driver does not report it.
	Speed float64
	// Offloads are those of the driver's features that matter, by their names in
	// ethtool.
	Offloads map[string]bool
	// Filters are programs and rules of other software that may drop the link's
	// packets before a macvlan gets them.
	Filters []string
}

// offloads are the features of LinkFacts; the kernel's names of them are the keys.
var offloads = map[string]string{
	"tx-tcp-segmentation": "tcp-segmentation-offload", "tx-generic-segmentation": "generic-segmentation-offload",
	"rx-gro": "generic-receive-offload", "rx-lro": "large-receive-offload", "rx-checksum": "rx-checksumming",
	"tx-checksum-ip-generic": "tx-checksumming", "tx-udp-segmentation": "tx-udp-segmentation",
	"rx-udp-gro-forwarding": "rx-udp-gro-forwarding",
}

// unknownSpeed is the speed in Mbit/s that drivers report if they know none
// (SPEED_UNKNOWN in ethtool.h).
const unknownSpeed = 1<<32 - 1

// DescribeLink describes the link of that name.
func DescribeLink(name string) (LinkFacts, error) {
	f := LinkFacts{Name: name, Offloads: map[string]bool{}}
	h, err := Open("", Options{})
	if err != nil {
		return f, err
	}
	defer h.Close()
	link, err := h.rtnl.LinkByName("", name)
	if err != nil {
		return f, fmt.Errorf("find link %s: %w", name, err)
	}
	f.MTU = link.Attrs().MTU
	err = h.Do(func() error { return f.ask() })
	if err == nil {
		f.Filters, err = h.filters(name)
	}
	if err != nil {
		return f, fmt.Errorf("describe link %s: %w", name, err)
	}
	return f, nil
}

// ask asks the driver. A driver need not answer every question.
func (f *LinkFacts) ask() error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer tool.Close()
	f.Driver, _ = tool.DriverName(f.Name)
	if settings, err := tool.CmdGetMapped(f.Name); err == nil && settings["speed"] != unknownSpeed {
		f.Speed = float64(settings["speed"]) * 1e6
	}
	features, err := tool.Features(f.Name)
	if err != nil {
		return nil
	}
	for kernel, name := range offloads {
		if on, known := features[kernel]; known {
			f.Offloads[name] = on
		}
	}
	return nil
}

// filters returns what other software has attached to the link.
func (h *Host) filters(name string) (all []string, err error) {
	found, err := h.inspect.Foreign(nil)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Link == name {
			all = append(all, f.What)
		}
	}
	err = h.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := conn.ListTablesOfFamily(nftables.TableFamilyNetdev)
		for _, t := range tables {
			all = append(all, "nftables table netdev "+t.Name)
		}
		return err
	})
	slices.Sort(all)
	return all, err
}

// LinkRate measures for the given time how many bytes per second a link of this
// process's network namespace receives and sends.
func LinkRate(name string, during time.Duration) (float64, error) {
	h, err := Open("", Options{})
	if err != nil {
		return 0, err
	}
	defer h.Close()
	began := time.Now()
	before, err := h.rtnl.LinkBytes("", name)
	if err != nil {
		return 0, err
	}
	time.Sleep(during)
	after, err := h.rtnl.LinkBytes("", name)
	return float64(after-before) / time.Since(began).Seconds(), err
}

// LinkTo returns the link of this process's network namespace through which it reaches
// an address directly. Returns an error if there is none, or a router is in between.
func LinkTo(addr netip.Addr) (string, error) {
	h, err := Open("", Options{})
	if err != nil {
		return "", err
	}
	defer h.Close()
	routes, err := h.rtnl.RouteGet(addr.Unmap().WithZone(""))
	if err != nil || len(routes) == 0 {
		return "", errors.Join(fmt.Errorf("there is no route to %s", addr), err)
	}
	if routes[0].Gw != nil {
		return "", fmt.Errorf("the route to %s goes through the router %s: the machines must be on one Ethernet segment",
			addr, routes[0].Gw)
	}
	return h.rtnl.LinkName(uint32(routes[0].LinkIndex)), nil
}
