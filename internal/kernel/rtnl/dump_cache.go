package rtnl

import (
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpCache caches netlink dumps while one observation runs. The kernel returns
// this state only for all objects at once, so the cache prevents listing a thousand
// bridge ports a thousand times.
type dumpCache struct {
	// hairpins is the mode of each port of the host's bridges, by the link's index.
	hairpins nlutil.Seen[host, map[int]bool]
	// routes are Fairlead's routes, by the namespace's path.
	routes nlutil.Seen[string, []plan.Route]
	// locals are the addresses of Fairlead's local routes.
	locals nlutil.Seen[host, map[netip.Addr]bool]
	// confs are the settings of links, by the namespace's path and the link's name.
	confs nlutil.Seen[string, map[string]LinkConf]
}

// host is the key of what only the host's namespace has.
type host struct{}

func (c *dumpCache) forget() {
	c.hairpins.Forget()
	c.routes.Forget()
	c.locals.Forget()
	c.confs.Forget()
}

// hairpin reports whether the bridge port sends frames back out of the same port.
func (h *Reader) hairpin(index int) (bool, error) {
	modes, err := h.seen.hairpins.Of(host{}, h.readHairpins)
	if err != nil {
		return false, fmt.Errorf("list bridge ports: %w", err)
	}
	return modes[index], nil
}

// readHairpins reads the hairpin mode of the host's bridge ports.
func (h *Reader) readHairpins() (modes map[int]bool, err error) {
	messages, err := h.dumpLinks(unix.AF_BRIDGE)
	modes = map[int]bool{}
	for _, m := range messages {
		link := nl.DeserializeIfInfomsg(m)
		modes[int(link.Index)] = nlutil.Flag(m[link.Len():], unix.IFLA_PROTINFO, nl.IFLA_BRPORT_MODE)
	}
	return modes, err
}

// SeenRoutes returns Fairlead's routes in a namespace.
func (h *Reader) SeenRoutes(netns string) ([]plan.Route, error) {
	return h.seen.routes.Of(netns, func() ([]plan.Route, error) { return h.Routes(netns) })
}
