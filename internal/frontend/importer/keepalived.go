package importer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// Keepalived imports the virtual_server and vrrp_instance blocks of keepalived.conf(5). For
// missing settings of services it uses keepalived's defaults: one success makes a server up,
// and the interval of checks is one minute.
func Keepalived(text []byte) Imported {
	var all Imported
	lines := map[string]int{}
	var fixed []block
	body, unmatched := blocks(tokens(text))
	all.Reports = unmatched
	for _, b := range body {
		switch b.keyword() {
		case "virtual_server":
			v, ok := all.virtualServer(b)
			if ok {
				all.unread(b)
				if _, twice := lines[v.Name]; twice {
					all.report(b.line, "%s is declared twice: the first one is used", v.Name)
					continue
				}
				lines[v.Name] = b.line
				all.Services = append(all.Services, v)
			}
		case "vrrp_instance":
			all.instance(b)
		case "vrrp_sync_group":
			all.report(b.line, "vrrp_sync_group %s: not imported: each address moves on its own", b.rest())
		case "vrrp_script", "vrrp_track_process", "vrrp_track_file", "track_file":
			all.report(b.line, "%s %s: not imported: %s", b.keyword(), b.rest(), unneeded("track_"))
		case "include":
			all.report(b.line, "include %s: the file is not read: import it separately", b.rest())
		case "static_ipaddress":
			fixed = append(fixed, b.body...)
		case "global_defs", "static_routes", "static_rules":
			all.report(b.line, "%s: not imported: only virtual services and addresses are imported", b.keyword())
		default:
			all.report(b.line, "%s: not imported: it is neither a virtual_server nor a vrrp_instance block", b.keyword())
		}
	}
	all.fix(fixed)
	return all.done(lines)
}

// server is a virtual_server while it is imported.
type server struct {
	*Imported
	v model.VirtualService
	// kind is the default forwarding method of the real servers.
	kind forwarding
	// defaults has the check settings of the virtual_server, and first is the line of the
	// first check.
	defaults checkSettings
	first    int
	// weight is the default weight of the real servers.
	weight int
	// unchecked are the lines of real servers without a check. idle are statements for
	// checks that no check uses.
	unchecked []int
	idle      []block
}

// kinds are keepalived's names of the forwarding methods.
var kinds = map[string]model.Forward{"NAT": model.ForwardNAT, "DR": model.ForwardDirect, "TUN": model.ForwardTunnel}

func (i *Imported) virtualServer(b block) (model.VirtualService, bool) {
	if b.word(0) == "fwmark" || b.word(0) == "group" {
		i.report(b.line, "virtual_server %s: not imported: a service needs addresses and ports: name them", b.rest())
		return model.VirtualService{}, false
	}
	at, ok := place(b)
	if !ok || at.Port() == 0 {
		i.report(b.line, "virtual_server %s: not imported: want an address and a port", b.rest())
		return model.VirtualService{}, false
	}
	proto := model.TCP
	for _, f := range b.body {
		if f.keyword() == "protocol" {
			proto = map[string]model.Proto{"TCP": model.TCP, "UDP": model.UDP}[f.word(0)]
		}
	}
	if proto == "" {
		i.report(b.line, "virtual_server %s: not imported: its protocol is neither TCP nor UDP", b.rest())
		return model.VirtualService{}, false
	}
	s := server{Imported: i, v: virtual(proto, at), kind: forwarding{forward: model.ForwardNAT},
		defaults: defaultCheck(), weight: 1}
	s.v.Scheduler = model.WeightedLeastConnection // keepalived's default
	for _, f := range b.body {
		if f.keyword() != "real_server" {
			s.option(f)
		}
	}
	for _, f := range b.body {
		if f.keyword() == "real_server" {
			s.real(f)
		}
	}
	s.settle(b)
	if len(s.v.Reals) == 0 && slices.ContainsFunc(b.body, func(f block) bool { return f.keyword() == "real_server" }) {
		i.report(b.line, "%s is not imported: none of its real servers could be imported", s.v.Name)
		return s.v, false
	}
	return s.v, true
}

// settle completes a service after all its statements are read. It reports statements
// for checks if there is no check, and converts the quorum to a number of servers.
func (s *server) settle(b block) {
	if s.v.Check.Checks() {
		for _, line := range s.unchecked {
			s.report(line, "this real server has no check, and others of its service have one: it gets the same check")
		}
	} else {
		s.idle = append(s.idle, s.defaults.statements...)
	}
	for _, f := range s.idle {
		s.report(f.line, "%s: not imported: no check uses it", strings.TrimSpace(f.keyword()+" "+f.rest()))
	}
	if s.v.Quorum > 0 {
		s.quorum(b.line)
	}
}

// quorum converts keepalived's quorum, which is the minimum sum of the weights of the
// servers that are up, to a number of servers. It takes the smallest number of servers
// that always reaches the sum, and reports if fewer can also reach it. As in
// keepalived, a quorum above the sum of all weights is that sum.
func (s *server) quorum(line int) {
	var weights []int
	sum := 0
	for _, r := range s.v.Reals {
		weights = append(weights, r.Weight)
		sum += r.Weight
	}
	if len(weights) == 0 {
		return
	}
	slices.Sort(weights)
	want, lightest, heaviest, n := min(s.v.Quorum, sum), 0, 0, 0
	for ; n < len(weights) && (lightest < want || n == 0); n++ {
		lightest += weights[n]
	}
	for i := range n - 1 {
		heaviest += weights[len(weights)-1-i]
	}
	if n > 1 && heaviest >= want {
		s.report(line, "quorum %d: keepalived adds the weights of the servers that are up, Fairlead counts the "+
			"servers: quorum %d is the smallest number of servers whose weights always reach %d", s.v.Quorum, n, want)
	}
	s.v.Quorum = n
}

// place parses an address and a port, which are two words.
func place(b block) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(b.word(0))
	port, bad := strconv.ParseUint(b.word(1), 10, 16)
	if b.word(1) == "" {
		port, bad = 0, nil
	}
	return netip.AddrPortFrom(addr, uint16(port)), err == nil && bad == nil
}

// option imports an option of a virtual_server.
func (s *server) option(f block) {
	switch f.keyword() {
	case "lb_algo", "lvs_sched":
		s.v.Scheduler = s.schedule(f.line, f.word(0))
	case "lb_kind", "lvs_method":
		s.forward(f, &s.kind)
	case "persistence_timeout":
		s.v.Persistence = 360 * time.Second // keepalived's default
		if f.word(0) == "" {
			return
		}
		t, ok := seconds(f.word(0))
		if !ok {
			s.report(f.line, "persistence_timeout %s: want seconds: %s is used", f.word(0), s.v.Persistence)
			return
		}
		s.v.Persistence = t
	case "sorry_server":
		if at, ok := place(f); ok {
			s.v.Sorry = at
			return
		}
		s.report(f.line, "sorry_server %s: not imported: want an address and a port", f.rest())
	case "quorum":
		s.number(f, &s.v.Quorum)
	case "weight":
		s.number(f, &s.weight)
	case "alpha":
		s.defaults.Initial = model.InitialDown
		s.defaults.statements = append(s.defaults.statements, f)
	case "virtualhost":
		s.defaults.Host = f.word(0)
		s.defaults.statements = append(s.defaults.statements, f)
	case "protocol":
	case "hysteresis":
		if f.word(0) != "0" {
			s.report(f.line, "hysteresis %s: not imported: Fairlead uses one quorum for loss and gain; rise and "+
				"fall prevent flapping", f.word(0))
		}
	case "inhibit_on_failure":
		s.inhibit(f)
	case "include":
		s.report(f.line, "include %s: the file is not read: copy its content to this place", f.rest())
	case "quorum_up", "quorum_down":
		s.report(f.line, "%s: not imported: no command is run: use `fairlead service watch` to get the events",
			f.keyword())
	default:
		if !s.timing(f, &s.defaults) {
			s.skip(f)
		}
	}
}

func (s *server) inhibit(f block) {
	s.report(f.line, "inhibit_on_failure: not imported: Fairlead ends the connections of a server that is down, so "+
		"that clients reconnect")
}

// forward imports a forwarding method: NAT, DR, or TUN with the options type TYPE, port
// NUMBER, and csum, remcsum or nocsum.
func (s *server) forward(f block, into *forwarding) {
	kind, ok := kinds[f.word(0)]
	if !ok {
		s.report(f.line, "%s %s: want NAT, DR or TUN: %s is used", f.keyword(), f.word(0), *into)
		return
	}
	if kind != model.ForwardTunnel {
		*into = forwarding{forward: kind}
		return
	}
	options := map[string]string{}
	for i := 1; f.word(i) != ""; i++ {
		switch word := f.word(i); word {
		case "type", "port":
			i++
			options[word] = f.word(i)
		case "csum", "remcsum", "nocsum":
			options["sum"] = word
		default:
			s.report(f.line, "tunnel option %s: not imported", word)
		}
	}
	by, err := wrapped(options["type"], options["port"], options["sum"])
	if err != nil {
		s.report(f.line, "%s: %v: %s is used", f.rest(), err, *into)
		return
	}
	*into = by
}

func (i *Imported) number(f block, into *int) {
	n, err := strconv.Atoi(f.word(0))
	if err != nil || n < 0 {
		i.report(f.line, "%s %s: want a number", f.keyword(), f.word(0))
		return
	}
	*into = n
}

// real imports a real_server block.
func (s *server) real(b block) {
	at, ok := place(b)
	if !ok {
		s.report(b.line, "real_server %s is not imported: want an address and a port", b.rest())
		return
	}
	r := model.RealServer{Address: at.Addr(), Port: at.Port(), Weight: s.weight}
	kind, how := s.kind, s.defaults
	how.statements = nil
	var check *block
	for j, f := range b.body {
		switch f.keyword() {
		case "weight":
			s.number(f, &r.Weight)
		case "lvs_method":
			s.forward(f, &kind)
		case "inhibit_on_failure":
			s.inhibit(f)
		case "virtualhost":
			how.Host = f.word(0)
			how.statements = append(how.statements, f)
		case "alpha":
			how.Initial = model.InitialDown
			how.statements = append(how.statements, f)
		case "notify_up", "notify_down":
			s.report(f.line, "%s: not imported: no command is run: use `fairlead service watch` to get the events",
				f.keyword())
		default:
			switch {
			case s.timing(f, &how):
			case !f.braced:
				s.skip(f)
			case check != nil:
				s.report(f.line, "%s: not imported: a real server can have only one check: the first one is used",
					f.keyword())
			default:
				check = &b.body[j]
			}
		}
	}
	if check == nil {
		s.unchecked = append(s.unchecked, b.line)
		s.idle = append(s.idle, how.statements...)
	} else {
		s.check(*check, how, r)
	}
	s.add(b.line, &s.v, r, kind)
}
