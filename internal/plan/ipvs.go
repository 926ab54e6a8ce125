package plan

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// IPVSService is a virtual service of the kernel's IPVS with one frontend and its
// real servers. Bits of the service's flags that IPVS does not use mark it as
// Fairlead's; ipvsadm(8) neither shows nor sets these bits.
type IPVSService struct {
	Proto model.Proto
	At    netip.AddrPort
	// Scheduler is one of the model's. It is empty if the service in the kernel has
	// a scheduler or flags that match none of them.
	Scheduler model.Scheduler
	// Forward is the method of every real server. It is empty if a real server in
	// the kernel uses another one.
	Forward model.Forward
	// Tunnel is the encapsulation if Forward is tunnel.
	Tunnel      model.Tunnel
	Persistence time.Duration
	// Reals are the real servers sorted by address, with port and weight only. A
	// draining one has weight 0.
	Reals []Backend
}

func (s IPVSService) equal(o Object) bool {
	other, ok := o.(IPVSService)
	return ok && s.Proto == other.Proto && s.At == other.At && s.Scheduler == other.Scheduler &&
		s.Forward == other.Forward &&
		s.Tunnel == other.Tunnel && s.Persistence == other.Persistence && same(s.Reals, other.Reals)
}

// Key implements Object.
func (s IPVSService) Key() string { return "ipvs " + string(s.Proto) + " " + s.At.String() }

// Add implements Object.
func (s IPVSService) Add() []string {
	cmds := []string{"ipvsadm -A " + s.settings()}
	for _, r := range s.Reals {
		cmds = append(cmds, s.real("-a", r))
	}
	return cmds
}

// Del implements Object. The kernel removes the real servers with the service.
func (s IPVSService) Del() []string { return []string{"ipvsadm -D " + s.name()} }

// change implements changer.
func (s IPVSService) change(old Object) []string {
	o, ok := old.(IPVSService)
	if !ok {
		return s.Add()
	}
	var cmds []string
	if o.Scheduler != s.Scheduler || o.Persistence != s.Persistence {
		cmds = append(cmds, "ipvsadm -E "+s.settings())
	}
	before := map[netip.AddrPort]Backend{}
	for _, r := range o.Reals {
		before[r.At] = r
	}
	for _, r := range s.Reals {
		was, known := before[r.At]
		delete(before, r.At)
		if !known {
			cmds = append(cmds, s.real("-a", r))
		} else if was != r || o.Forward != s.Forward || o.Tunnel != s.Tunnel {
			cmds = append(cmds, s.real("-e", r))
		}
	}
	for _, r := range o.Reals {
		if _, gone := before[r.At]; gone {
			cmds = append(cmds, fmt.Sprintf("ipvsadm -d %s -r %s", s.name(), r.At))
		}
	}
	return cmds
}

func (s IPVSService) name() string {
	if s.Proto == model.UDP {
		return "-u " + s.At.String()
	}
	return "-t " + s.At.String()
}

// settings returns the service in the syntax of `ipvsadm -A`. With sh-fallback and
// mh-fallback, a client whose server has weight 0 gets another server. With
// mh-port, the Maglev hash includes the client's port.
func (s IPVSService) settings() string {
	text := s.name() + " -s " + string(s.Scheduler)
	switch s.Scheduler.Traits().Hashes {
	case model.ClientKey:
		text += fmt.Sprintf(" -b %s-fallback", s.Scheduler)
	case model.FullKey:
		text += fmt.Sprintf(" -b %[1]s-fallback,%[1]s-port", s.Scheduler)
	}
	if s.Persistence > 0 {
		text += fmt.Sprintf(" -p %d", s.Persistence/time.Second)
	}
	return text
}

func (s IPVSService) real(verb string, r Backend) string {
	method := map[model.Forward]string{model.ForwardNAT: "-m", model.ForwardDirect: "-g",
		model.ForwardTunnel: "-i"}[s.Forward]
	text := fmt.Sprintf("ipvsadm %s %s -r %s %s -w %d", verb, s.name(), r.At, method, r.Weight)
	if s.Tunnel.Type != model.TunnelIPIP {
		text += fmt.Sprintf(" --tun-type %s --tun-port %d", s.Tunnel.Type, s.Tunnel.Port)
	}
	if s.Tunnel.Checksum != "" {
		text += " --tun-" + string(s.Tunnel.Checksum)
	}
	return text
}

// LocalRoute makes the host accept packets to an address that is not on any of its
// links.
type LocalRoute struct{ Addr netip.Addr }

// Key implements Object.
func (r LocalRoute) Key() string { return "local route " + r.Addr.String() }

// Add implements Object. It does not replace another route to the address.
func (r LocalRoute) Add() []string { return []string{r.command("append")} }

// Del implements Object.
func (r LocalRoute) Del() []string { return []string{r.command("del")} }

func (r LocalRoute) command(verb string) string {
	ip := "ip"
	if r.Addr.Is6() {
		ip = "ip -6"
	}
	return fmt.Sprintf("%s route %s local %s dev lo table local proto %d", ip, verb, r.Addr, RouteProtocol)
}
