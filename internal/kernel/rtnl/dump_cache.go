package rtnl

import (
	"fmt"
	"net/netip"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpCache caches netlink dumps while one observation runs. The kernel returns
// this state only for all objects at once, so the cache prevents listing a thousand
// bridge ports a thousand times.
type dumpCache struct {
	// hairpins is the mode of each port of the host's bridges, by the link's index.
	hairpins map[int]bool
	// routes are Fairlead's routes, by the namespace's path.
	routes map[string][]plan.Route
	// locals are the addresses of Fairlead's local routes.
	locals map[netip.Addr]bool
	// confs are the settings of links, by the namespace's path and the link's name.
	confs map[string]map[string]LinkConf
}

// hairpin reports whether the bridge port sends frames back out of the same port.
func (h *Reader) hairpin(index int) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.hairpins == nil {
		var err error
		if h.seen.hairpins, err = h.readHairpins(); err != nil {
			return false, fmt.Errorf("list bridge ports: %w", err)
		}
	}
	return h.seen.hairpins[index], nil
}

// readHairpins reads the hairpin mode of the host's bridge ports.
func (h *Reader) readHairpins() (modes map[int]bool, err error) {
	messages, err := h.dumpLinks(unix.AF_BRIDGE)
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

// SeenRoutes returns Fairlead's routes in a namespace.
func (h *Reader) SeenRoutes(netns string) ([]plan.Route, error) {
	h.mu.Lock()
	routes, ok := h.seen.routes[netns]
	h.mu.Unlock()
	if ok {
		return routes, nil
	}
	routes, err := h.Routes(netns)
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
