package docker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// port is a container port that Docker requests to publish.
type port struct {
	proto model.Proto
	// addr is the host address; the zero value means all.
	addr      netip.Addr
	container uint16
	// host is one host port, or a range of which any port is allowed, or zero if
	// any port is allowed.
	host model.PortRange
}

func (p port) fixed() bool { return p.host.First != 0 && p.host.First == p.host.Last }

// readPorts parses Docker's port map.
func readPorts(o options, s settings) ([]port, error) {
	var bindings []binding
	if raw, ok := o[keyPortMap]; ok {
		if err := json.Unmarshal(raw, &bindings); err != nil {
			return nil, fmt.Errorf("read port map: %w", err)
		}
	}
	protos := map[uint8]model.Proto{unix.IPPROTO_TCP: model.TCP, unix.IPPROTO_UDP: model.UDP}
	ports := make([]port, 0, len(bindings))
	for _, b := range bindings {
		p := port{proto: protos[b.Proto], container: b.Port, addr: s.HostAddr,
			host: model.PortRange{First: b.HostPort, Last: max(b.HostPort, b.HostPortEnd)}}
		if p.proto == "" {
			return nil, fmt.Errorf("publish port %d of IP protocol %d (132 is sctp): want tcp or udp: for other "+
				"protocols use the container's own address", b.Port, b.Proto)
		}
		if b.HostIP != "" {
			addr, err := netip.ParseAddr(b.HostIP)
			if err != nil {
				return nil, fmt.Errorf("publish port %d at %.64q: want an address of the host", b.Port, b.HostIP)
			}
			p.addr = addr.Unmap()
		}
		if o.flag(keyNoProxy6To4) && !p.addr.IsValid() {
			p.addr = netip.IPv4Unspecified() // another endpoint is the gateway for IPv6
		}
		if p.container == 0 {
			return nil, errors.New("publish port 0: want 1 to 65535")
		}
		if p.host.First == 0 {
			p.host.Last = 0
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b port) int {
		return cmp.Or(cmp.Compare(a.proto, b.proto), a.addr.Compare(b.addr), cmp.Compare(a.host.First, b.host.First),
			cmp.Compare(a.host.Last, b.host.Last), cmp.Compare(a.container, b.container))
	})
	return slices.Compact(ports), nil
}

// span is a range of consecutive ports that are published together.
type span struct {
	port
	length int
}

// spans joins consecutive ports to ranges. A range of a thousand ports is one
// object in the kernel and in the store.
func spans(ports []port) []span {
	var all []span
	for _, p := range ports {
		if len(all) > 0 && all[len(all)-1].before(p) {
			all[len(all)-1].length++
			continue
		}
		all = append(all, span{p, 1})
	}
	return all
}

// before reports whether the port is the next of the span.
func (s span) before(p port) bool {
	if s.proto != p.proto || s.addr != p.addr || int(s.container)+s.length != int(p.container) {
		return false
	}
	if s.fixed() {
		return p.fixed() && int(s.host.First)+s.length == int(p.host.First)
	}
	return s.host.First == 0 && p.host.First == 0
}

// publish returns the span as a publish whose host ports begin at first.
func (s span) publish(first uint16) model.Publish {
	last := uint16(s.length - 1)
	return model.Publish{Proto: s.proto, HostAddr: s.addr, HostPorts: model.PortRange{First: first, Last: first + last},
		Ports: model.PortRange{First: s.container, Last: s.container + last}}
}

// same reports whether a publish belongs to the span.
func (s span) same(p model.Publish) bool {
	if s.proto != p.Proto || s.addr != p.HostAddr || p.Ports != s.publish(0).Ports {
		return false
	}
	return s.host.First == 0 || s.host.First <= p.HostPorts.First && p.HostPorts.First <= s.host.Last
}

// publish publishes exactly the ports of an endpoint that Docker requests, in one
// step.
func (d *Driver) publish(name string, o options) error {
	all := d.cfg.Daemon.Attachments()
	i := slices.IndexFunc(all, func(v api.View) bool { return v.Name == name })
	if i < 0 {
		return fmt.Errorf("publish ports of %s: there is no such endpoint", name)
	}
	me := all[i]
	s := d.settings(me.Network)
	if via := d.endpointSettings(name).Via; via != "" {
		s.Via = via
	}
	ports, err := readPorts(o, s)
	if err != nil {
		return err
	}
	if err := d.bindable(ports); err != nil {
		return err
	}
	taken, err := d.expose(&chooser{last: &d.last, all: all, me: me, wanted: spans(ports)}, s)
	if taken != nil {
		return errors.Join(d.allocated(name, taken), err)
	}
	return err
}

// expose chooses the ports and publishes them. If a port is taken, it returns the port
// with its owner, and the error of removing a dead owner, if any.
func (d *Driver) expose(c *chooser, s settings) (taken *model.PortTakenError, err error) {
	d.choosing.Lock()
	defer d.choosing.Unlock()
	displaced := map[string]bool{}
	if c.open() {
		if c.local, err = d.cfg.Host.LocalPorts(); err != nil {
			return nil, err
		}
	}
	for {
		publishes, err := c.choose()
		if err != nil {
			return nil, err
		}
		for i := range publishes {
			publishes[i].Via, publishes[i].Promises = s.Via, s.Promises
		}
		err = d.cfg.Daemon.Expose(c.me.Name, publishes)
		if taken = nil; !errors.As(err, &taken) {
			return nil, err
		}
		if c.avoid(taken.Publish) {
			continue
		}
		again, err := d.displace(c.owners(taken.Publish), displaced)
		if err != nil || !again {
			return taken, err
		}
	}
}

// bindable refuses ports at an address that the host does not have, as Docker does.
func (d *Driver) bindable(ports []port) error {
	checked := map[netip.Addr]bool{}
	for _, p := range ports {
		if !p.addr.IsValid() || p.addr.IsUnspecified() || checked[p.addr] {
			continue
		}
		checked[p.addr] = true
		if can, err := d.cfg.Host.CanBind(p.addr); err != nil || !can {
			//lint:ignore ST1005 it is Docker's
			refused := fmt.Errorf("Bind for %s failed: cannot assign requested address: the host does not have %s: publish at an address of the host, or set net.ipv4.ip_nonlocal_bind=1 if it gets the address later", netip.AddrPortFrom(p.addr, p.host.First), p.addr)
			return errors.Join(err, refused)
		}
	}
	return nil
}

// displace removes those owners of a port that are dead, each only once, and
// reports whether it removed any.
func (d *Driver) displace(owners []string, displaced map[string]bool) (bool, error) {
	removed := false
	for _, name := range owners {
		if displaced[name] {
			continue
		}
		displaced[name] = true
		gone, err := d.cfg.Daemon.Displace(name)
		if err != nil {
			return removed, err
		}
		if gone {
			d.cfg.Log.Warn("removed a dead endpoint that had published the port", "attachment", name)
		}
		removed = removed || gone
	}
	return removed, nil
}

// allocated returns the error with Docker's text, because other programs search
// for it.
func (d *Driver) allocated(name string, t *model.PortTakenError) error {
	at := netip.AddrPortFrom(t.Publish.HostAddr, t.Publish.HostPorts.First)
	if !t.Publish.HostAddr.IsValid() {
		at = netip.AddrPortFrom(netip.IPv4Unspecified(), t.Publish.HostPorts.First)
	}
	where := at.String()
	if t.Publish.HostPorts.Len() > 1 {
		where += fmt.Sprintf("-%d", t.Publish.HostPorts.Last)
	}
	//lint:ignore ST1005 it is Docker's
	return fmt.Errorf("Bind for %s failed: port is already allocated: %s has it: choose another host port, or stop the owner", where, d.ownerOf(name, t))
}

// ownerOf returns the owner of a taken port as Docker's users know it: the
// container. Without a container it is what the daemon says, e.g. a process.
func (d *Driver) ownerOf(name string, t *model.PortTakenError) string {
	for _, v := range d.cfg.Daemon.Attachments() {
		if v.Name == name || !slices.ContainsFunc(v.Publishes,
			func(p api.PublishedView) bool { return p.Collides(t.Publish) }) {
			continue
		}
		if kind, container, _ := strings.Cut(v.Ref, ":"); kind == string(sandbox.Container) {
			return "container " + container
		}
		id, theirs := strings.CutPrefix(v.Ref, sandbox.EndpointRef)
		if !theirs {
			break
		}
		if container := d.cfg.ContainerOf(id); container != "" {
			return "container " + container
		}
		return "the container of endpoint " + id[:min(short, len(id))]
	}
	return t.Owner
}
