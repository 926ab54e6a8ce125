package importer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// Keepalived reads the virtual_server blocks of keepalived.conf(5). What it
// leaves to keepalived's defaults, it says as these are: one success makes a
// server up, a check is made every minute.
func Keepalived(text []byte) Imported {
	var all Imported
	lines := map[string]int{}
	var fixed []block
	body, unmatched := blocks(tokens(text))
	all.Left = unmatched
	for _, b := range body {
		switch b.keyword() {
		case "virtual_server":
			v, ok := all.virtualServer(b)
			if ok {
				all.unread(b)
				if _, twice := lines[v.Name]; twice {
					all.left(b.line, "%s is there twice: the first is taken", v.Name)
					continue
				}
				lines[v.Name] = b.line
				all.Services = append(all.Services, v)
			}
		case "vrrp_instance", "vrrp_sync_group", "vrrp_script", "vrrp_track_process":
			all.left(b.line, "%s %s: virtual addresses do not move between hosts here: leave that to keepalived, without its virtual_server blocks", b.keyword(), b.rest())
		case "include":
			all.left(b.line, "include %s: the file is not read: import it by itself", b.rest())
		case "static_ipaddress":
			fixed = append(fixed, b.body...)
		case "global_defs", "static_routes", "static_rules":
			all.left(b.line, "%s: not imported: only virtual services are", b.keyword())
		default:
			all.left(b.line, "%s: it is no virtual_server block", b.keyword())
		}
	}
	all.fix(fixed)
	return all.done(lines)
}

// server is a virtual_server as it is read.
type server struct {
	*Imported
	v model.VirtualService
	// kind is how real servers are forwarded to that do not say it.
	kind sending
	// usual is what checks have in common, and first the line of the first of
	// them.
	usual checking
	first int
	// weight is that of real servers that do not say it.
	weight int
	// unchecked are the lines of real servers without a check, and idle the
	// statements that only a check would need and that no check has.
	unchecked []int
	idle      []block
}

// kinds are the names of ways to forward.
var kinds = map[string]model.Forward{"NAT": model.ForwardNAT, "DR": model.ForwardDirect, "TUN": model.ForwardTunnel}

func (i *Imported) virtualServer(b block) (model.VirtualService, bool) {
	if b.word(0) == "fwmark" || b.word(0) == "group" {
		i.left(b.line, "virtual_server %s: a service has addresses and ports: name them", b.rest())
		return model.VirtualService{}, false
	}
	at, ok := place(b)
	if !ok || at.Port() == 0 {
		i.left(b.line, "virtual_server %s: want an address and a port", b.rest())
		return model.VirtualService{}, false
	}
	proto := model.TCP
	for _, f := range b.body {
		if f.keyword() == "protocol" {
			proto = map[string]model.Proto{"TCP": model.TCP, "UDP": model.UDP}[f.word(0)]
		}
	}
	if proto == "" {
		i.left(b.line, "virtual_server %s: it is of neither TCP nor UDP", b.rest())
		return model.VirtualService{}, false
	}
	s := server{Imported: i, v: virtual(proto, at), kind: sending{forward: model.ForwardNAT}, usual: usually(), weight: 1}
	s.v.Scheduler = model.WeightedLeastConnection // keepalived's own
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
		i.left(b.line, "%s is left out: none of its real servers could be imported", s.v.Name)
		return s.v, false
	}
	return s.v, true
}

// settle completes a service when all of it is read: it reports what needs a check
// where there is none, and counts the quorum in servers.
func (s *server) settle(b block) {
	if s.v.Check.Checks() {
		for _, line := range s.unchecked {
			s.left(line, "it has no check, and the others of its service do: it is checked as they are")
		}
	} else {
		s.idle = append(s.idle, s.usual.said...)
	}
	for _, f := range s.idle {
		s.left(f.line, "%s: not imported: there is no check that it would change", strings.TrimSpace(f.keyword()+" "+f.rest()))
	}
	if s.v.Quorum > 0 {
		s.quorum(b.line)
	}
}

// quorum turns keepalived's quorum, which is the least sum of the weights of the
// servers that are up, into a number of servers, and reports where no number means the
// same: the smallest that reaches the sum whichever servers are up is taken. As in
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
		s.left(line, "quorum %d: keepalived adds up the weights of servers that are up, Fairlead counts the servers: quorum %d is the smallest number that always weighs %d", s.v.Quorum, n, want)
	}
	s.v.Quorum = n
}

// place reads an address and a port, which are two words.
func place(b block) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(b.word(0))
	port, bad := strconv.ParseUint(b.word(1), 10, 16)
	if b.word(1) == "" {
		port, bad = 0, nil
	}
	return netip.AddrPortFrom(addr, uint16(port)), err == nil && bad == nil
}

// option reads an option of a virtual_server.
func (s *server) option(f block) {
	switch f.keyword() {
	case "lb_algo", "lvs_sched":
		s.v.Scheduler = s.schedule(f.line, f.word(0))
	case "lb_kind", "lvs_method":
		s.forward(f, &s.kind)
	case "persistence_timeout":
		s.v.Persistence = 360 * time.Second // keepalived's own
		if f.word(0) == "" {
			return
		}
		t, ok := seconds(f.word(0))
		if !ok {
			s.left(f.line, "persistence_timeout %s: want seconds: %s is taken", f.word(0), s.v.Persistence)
			return
		}
		s.v.Persistence = t
	case "sorry_server":
		if at, ok := place(f); ok {
			s.v.Sorry = at
			return
		}
		s.left(f.line, "sorry_server %s: want an address and a port", f.rest())
	case "quorum":
		s.number(f, &s.v.Quorum)
	case "weight":
		s.number(f, &s.weight)
	case "alpha":
		s.usual.Initial = model.InitialDown
		s.usual.said = append(s.usual.said, f)
	case "virtualhost":
		s.usual.Host = f.word(0)
		s.usual.said = append(s.usual.said, f)
	case "protocol":
	case "hysteresis":
		if f.word(0) != "0" {
			s.left(f.line, "hysteresis %s: the quorum is gained as it is lost; rise and fall keep it from flapping", f.word(0))
		}
	case "inhibit_on_failure":
		s.inhibit(f)
	case "include":
		s.left(f.line, "include %s: the file is not read: write what it says in its place", f.rest())
	case "quorum_up", "quorum_down":
		s.left(f.line, "%s: nothing is run: `fairlead service watch` tells", f.keyword())
	default:
		if !s.timing(f, &s.usual) {
			s.skip(f)
		}
	}
}

func (s *server) inhibit(f block) {
	s.left(f.line, "inhibit_on_failure: the connections of a server that is down are ended, so that clients notice")
}

// forward reads a way to forward: NAT, DR, or TUN and, of the tunnel, type TYPE,
// port NUMBER, and csum, remcsum or nocsum.
func (s *server) forward(f block, into *sending) {
	kind, ok := kinds[f.word(0)]
	if !ok {
		s.left(f.line, "%s %s: want NAT, DR or TUN: %s is taken", f.keyword(), f.word(0), *into)
		return
	}
	if kind != model.ForwardTunnel {
		*into = sending{forward: kind}
		return
	}
	said := map[string]string{}
	for i := 1; f.word(i) != ""; i++ {
		switch word := f.word(i); word {
		case "type", "port":
			i++
			said[word] = f.word(i)
		case "csum", "remcsum", "nocsum":
			said["sum"] = word
		default:
			s.left(f.line, "%s of a tunnel: not imported", word)
		}
	}
	by, err := wrapped(said["type"], said["port"], said["sum"])
	if err != nil {
		s.left(f.line, "%s: %v: %s is taken", f.rest(), err, *into)
		return
	}
	*into = by
}

func (i *Imported) number(f block, into *int) {
	n, err := strconv.Atoi(f.word(0))
	if err != nil || n < 0 {
		i.left(f.line, "%s %s: want a number", f.keyword(), f.word(0))
		return
	}
	*into = n
}

// real reads a real_server block.
func (s *server) real(b block) {
	at, ok := place(b)
	if !ok {
		s.left(b.line, "real_server %s is left out: want an address and a port", b.rest())
		return
	}
	r := model.RealServer{Address: at.Addr(), Port: at.Port(), Weight: s.weight}
	kind, how := s.kind, s.usual
	how.said = nil
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
			how.said = append(how.said, f)
		case "alpha":
			how.Initial = model.InitialDown
			how.said = append(how.said, f)
		case "notify_up", "notify_down":
			s.left(f.line, "%s: nothing is run: `fairlead service watch` tells", f.keyword())
		default:
			switch {
			case s.timing(f, &how):
			case !f.braced:
				s.skip(f)
			case check != nil:
				s.left(f.line, "%s: a real server has one check: the first is taken", f.keyword())
			default:
				check = &b.body[j]
			}
		}
	}
	if check == nil {
		s.unchecked = append(s.unchecked, b.line)
		s.idle = append(s.idle, how.said...)
	} else {
		s.check(*check, how, r)
	}
	s.add(b.line, &s.v, r, kind)
}
