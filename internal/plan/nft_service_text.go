package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// HashSeed is the seed of the hashes in nft. All hosts use the same, so they choose
// the same buckets.
const HashSeed = 0xfa1e

// Add implements Object.
func (s NFTService) Add() []string { return s.script(s.text(s.From(nil))) }

// Del implements Object.
func (s NFTService) Del() []string {
	if s.Damaged {
		return s.script(s.remains())
	}
	return s.script(s.drop(s.elements("delete", s.Entries()), s.Removal()))
}

// change implements changer.
func (s NFTService) change(old Object) []string {
	was, _ := old.(NFTService)
	if was.Damaged {
		return s.script(append(was.remains(), s.text(s.From(nil))...))
	}
	c := s.From(&was)
	lines := s.text(c)
	if c.Unbind {
		lines = append(lines, fmt.Sprintf("# delete every element of %s with the value %s", s.Clients(),
			join(was.Leaving(s))))
	}
	return s.script(lines)
}

func join(all []netip.AddrPort) string {
	words := make([]string, len(all))
	for i, at := range all {
		words[i] = at.String()
	}
	return strings.Join(words, ", ")
}

func (s NFTService) script(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return []string{"nft -f - <<'EOF'\n" + strings.Join(lines, "\n") + "\nEOF"}
}

// remains returns the commands that remove what exists of a damaged service.
func (s NFTService) remains() []string {
	return s.drop([]string{"# first delete every element that refers to the service's chains"},
		ServiceChange{Drop: []string{s.Reals()}})
}

// drop deletes the service's chains and maps, once no element refers to them.
func (s NFTService) drop(lines []string, c ServiceChange) []string {
	chains := []string{s.Chain()}
	if c.NoKeep {
		chains = append(chains, s.Keep())
	}
	for _, name := range chains {
		lines = append(lines, s.line("flush chain", name))
	}
	for _, name := range c.Drop {
		lines = append(lines, s.line("delete map", name))
	}
	for _, name := range chains {
		lines = append(lines, s.line("delete chain", name))
	}
	return lines
}

func (s NFTService) line(verb, what string) string {
	return verb + " inet " + ServicesTable + " " + what
}

// text writes a change.
func (s NFTService) text(c ServiceChange) []string {
	var lines []string
	add := func(verb, what string) { lines = append(lines, s.line(verb, what)) }
	if c.New {
		add("add chain", s.Chain())
	} else if c.Rules {
		add("flush chain", s.Chain())
	}
	if c.Clients {
		add("add chain", s.Keep())
	}
	if !c.New && c.Rules && (s.Remembers() || c.NoKeep) {
		add("flush chain", s.Keep())
	}
	for _, name := range c.Drop {
		add("delete map", name)
	}
	if c.Rules && len(s.Ring) > 0 {
		add("add map", fmt.Sprintf("%s { typeof numgen inc mod %d : %s; size %d; }", s.Reals(), len(s.Ring),
			s.value("typeof"), len(s.Ring)))
	}
	if c.Clients {
		add("add map", fmt.Sprintf("%s { type %s : %s; flags dynamic,timeout; }", s.Clients(), s.addrType(),
			s.client("type")))
	}
	lines = append(lines, s.elements("delete", c.Del)...)
	lines = append(lines, s.elements("add", c.Add)...)
	if c.Rules {
		for _, r := range s.Rules() {
			add("add rule", s.Chain()+" "+r)
		}
	}
	if c.Rules && s.Remembers() {
		add("add rule", s.Keep()+" "+s.KeepRule())
	}
	if c.NoKeep {
		add("delete chain", s.Keep())
	}
	return lines
}

func (s NFTService) addrType() string {
	if s.Is4() {
		return "ipv4_addr"
	}
	return "ipv6_addr"
}

func (s NFTService) ip() string {
	if s.Is4() {
		return "ip"
	}
	return "ip6"
}

// value returns the type of the values in the map of buckets.
func (s NFTService) value(how string) string { return s.real(how, !s.KeepsPort()) }

// client returns the type of the values in the map of clients.
func (s NFTService) client(how string) string { return s.real(how, s.clientsHavePort()) }

// real returns the type of a real server (how is "type"), or the packet fields that
// it is taken from.
func (s NFTService) real(how string, withPort bool) string {
	addr, port := s.ip()+" daddr", string(s.Proto)+" dport"
	if how == "type" {
		addr, port = s.addrType(), "inet_service"
	}
	if !withPort {
		return addr
	}
	return addr + " . " + port
}

// elements writes the commands for the elements, one line per map.
func (s NFTService) elements(verb string, all []ServiceEntry) []string {
	var names, lines []string
	of := map[string][]string{}
	for _, e := range all {
		name, text := s.element(e, verb == "add")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		of[name] = append(of[name], text)
	}
	for _, name := range names {
		lines = append(lines, s.line(verb+" element", name+" { "+strings.Join(of[name], ", ")+" }"))
	}
	return lines
}

// element returns the name of the element's map and the element. The element
// includes the value if value is true.
func (s NFTService) element(e ServiceEntry, value bool) (name, text string) {
	if !e.At.IsValid() {
		text = fmt.Sprint(e.Bucket)
		if value {
			text += " : " + e.Real.Addr().String()
			if e.Real.Port() != 0 {
				text += fmt.Sprintf(" . %d", e.Real.Port())
			}
		}
		return e.Map, text
	}
	text = fmt.Sprintf("%s . %s . ", e.At.Addr(), e.Proto)
	if e.Real.IsValid() {
		text += fmt.Sprintf("%s . %d . ", e.Real.Addr(), e.Real.Port())
	}
	text += fmt.Sprint(e.At.Port())
	verdict := ""
	switch e.Map {
	case MapServices:
		verdict = " : goto " + s.Chain()
	case MapPersistent:
		verdict = " : goto " + s.Keep()
	case MapSourceNAT:
		verdict = " : accept"
		if e.Masquerade {
			verdict = " : goto masqueraded"
		}
	}
	if value {
		text += verdict
	}
	return e.Map + familySuffix(e.At.Addr()), text
}

// Rules returns the rules of the service's chain in nft's syntax. Package kernel
// compiles them for netlink.
func (s NFTService) Rules() []string {
	if len(s.Ring) == 0 {
		if s.Proto == model.TCP {
			return []string{"meta l4proto tcp reject with tcp reset"}
		}
		return []string{"reject with icmpx type port-unreachable"}
	}
	var rules []string
	if s.Proto == model.TCP && !s.Hashes() {
		rules = append(rules, "tcp flags & (fin | syn | rst | ack) != syn reject with tcp reset")
	}
	mapping := fmt.Sprintf("meta l4proto %s dnat %s to ", s.Proto, s.ip())
	if s.Remembers() {
		known := mapping + s.ip() + " saddr map @" + s.Clients()
		if p := s.ClientsPort(); p != 0 {
			known += fmt.Sprintf(" : %d", p)
		}
		rules = append(rules, known)
	}
	return append(rules, mapping+s.bucket()+" map @"+s.Reals())
}

// KeepRule returns the rule of the chain that records a client. A new flow of a
// known client extends the entry's timeout and never changes the client's real
// server.
func (s NFTService) KeepRule() string {
	return fmt.Sprintf("update @%s { %s saddr timeout %ds : %s }", s.Clients(), s.ip(), s.Persistence/time.Second,
		s.client("typeof"))
}

// bucket returns the expression that chooses a bucket.
func (s NFTService) bucket() string {
	switch s.Scheduler.Traits().Hashes {
	case model.FullKey:
		return fmt.Sprintf("jhash %s saddr . %s sport mod %d seed %#x", s.ip(), s.Proto, len(s.Ring), HashSeed)
	case model.ClientKey:
		return fmt.Sprintf("jhash %s saddr mod %d seed %#x", s.ip(), len(s.Ring), HashSeed)
	default:
		return fmt.Sprintf("numgen inc mod %d", len(s.Ring))
	}
}
