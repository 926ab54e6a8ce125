package kernel

import (
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpCache is what the kernel tells only of everything at once, kept for as long
// as one observation takes: a thousand ports of a bridge are listed once, not
// a thousand times.
type dumpCache struct {
	// hairpins holds the mode of every port of the host's bridges, by its index.
	hairpins map[int]bool
	// routes are ours, by the namespace's path.
	routes map[string][]plan.Route
	// locals are the addresses of our local routes.
	locals map[netip.Addr]bool
	// ipvsTable is all that is in the nft table for IPVS.
	ipvsTable map[plan.Object]bool
	// confs holds the settings of links, by the namespace's path and their names.
	confs map[string]map[string]linkConf
	// programs holds the interfaces that have a program, by its name.
	programs map[string]map[int]bool
}

// hairpin reports whether the port of a bridge sends frames back.
func (h *Host) hairpin(index int) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.hairpins == nil {
		var err error
		if h.seen.hairpins, err = h.readHairpins(); err != nil {
			return false, fmt.Errorf("list the ports of bridges: %w", err)
		}
	}
	return h.seen.hairpins[index], nil
}

// readHairpins lists the ports of all bridges of the host.
func (h *Host) readHairpins() (modes map[int]bool, err error) {
	var messages [][]byte
	err = h.ns.Do(func() error {
		messages, err = retry(func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
			request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		return err
	})
	modes = map[int]bool{}
	for _, m := range messages {
		link := nl.DeserializeIfInfomsg(m)
		attrs, err := nl.ParseRouteAttrAsMap(m[link.Len():])
		if err != nil {
			return nil, err
		}
		port, err := nl.ParseRouteAttrAsMap(attrs[unix.IFLA_PROTINFO|unix.NLA_F_NESTED].Value)
		if err != nil {
			return nil, err
		}
		mode := port[nl.IFLA_BRPORT_MODE].Value
		modes[int(link.Index)] = len(mode) > 0 && mode[0] != 0
	}
	return modes, err
}

// seenRoutes returns the routes of ours in a namespace.
func (h *Host) seenRoutes(netns string) ([]plan.Route, error) {
	h.mu.Lock()
	routes, ok := h.seen.routes[netns]
	h.mu.Unlock()
	if ok {
		return routes, nil
	}
	routes, err := h.routes(netns)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.routes == nil {
		h.seen.routes = map[string][]plan.Route{}
	}
	h.seen.routes[netns] = routes
	return routes, nil
}

// seenPrograms returns the interfaces that have a program, and have it for as
// long as they should.
func (h *Host) seenPrograms(p *ebpf.Datapath, program string) (found map[int]bool, err error) {
	h.mu.Lock()
	found, ok := h.seen.programs[program]
	h.mu.Unlock()
	if ok {
		return found, nil
	}
	err = h.ns.Do(func() error {
		found, err = p.Sound(program)
		return err
	})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.programs == nil {
		h.seen.programs = map[string]map[int]bool{}
	}
	h.seen.programs[program] = found
	return found, nil
}
