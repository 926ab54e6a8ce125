package rules

import (
	"net/netip"
	"strconv"
	"strings"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// LegacyMark ends the name of a table of legacy iptables.
const LegacyMark = " (legacy)"

// hooks are the names of iptables' chains in nftables' words.
var hooks = map[string]string{"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting"}

// Saved reads what `iptables-legacy-save` or, for the family ip6,
// `ip6tables-legacy-save` prints.
func Saved(family, text string) Ruleset {
	var rs Ruleset
	table := ""
	chains := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := splitQuoted(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = strings.TrimPrefix(line, "*")
			clear(chains)
		case strings.HasPrefix(line, ":") && len(fields) > 1:
			name := strings.TrimPrefix(fields[0], ":")
			chains[name] = len(rs)
			rs = append(rs, savedChain(family, table, name, fields[1]))
		case len(fields) > 1 && fields[0] == "-A":
			if i, ok := chains[fields[1]]; ok {
				rs[i].Rules = append(rs[i].Rules, savedRule(family, fields[2:]))
			}
		}
	}
	return rs
}

func savedChain(family, table, name, policy string) Chain {
	c := Chain{Table: family + " " + table + LegacyMark, Name: name, Hook: hooks[name], Type: "filter"}
	if table == "nat" {
		c.Type = "nat"
	}
	if c.Hook == "" {
		c.Type = ""
		return c
	}
	c.Policy = map[string]Action{"DROP": Drop}[policy]
	if c.Policy == "" {
		c.Policy = Accept
	}
	c.Priority = map[string]int{"raw": -300, "mangle": -150, "nat": -100, "security": 50}[table]
	if table == "nat" && (name == "POSTROUTING" || name == "INPUT") {
		c.Priority = 100
	}
	return c
}

// splitQuoted splits at blanks, but for those in quotes.
func splitQuoted(line string) []string {
	var fields []string
	var field strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '"':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				fields = append(fields, field.String())
			}
			field.Reset()
			begun = false
		default:
			field.WriteRune(c)
			begun = true
		}
	}
	if begun {
		fields = append(fields, field.String())
	}
	return fields
}

// savedRule reads a rule's words. One that is not known makes it Partial.
func savedRule(family string, words []string) Rule {
	s := saved{family: family, words: words}
	for s.more() {
		word := s.next()
		if word == "!" {
			s.not = true
			continue
		}
		if s.condition(word) || s.action(word) {
			s.not = false
			continue
		}
		s.rule.Partial = true
		for s.more() && !strings.HasPrefix(s.words[0], "-") && s.words[0] != "!" {
			s.next()
		}
		s.not = false
	}
	return s.rule
}

// saved is the words of a rule that are still to be read.
type saved struct {
	family string
	words  []string
	not    bool
	rule   Rule
}

func (s *saved) more() bool { return len(s.words) > 0 }

func (s *saved) next() string {
	if !s.more() {
		return ""
	}
	word := s.words[0]
	s.words = s.words[1:]
	return word
}

func (s *saved) add(f Field, in ...Range) {
	c := Condition{Fields: []Field{f}, Not: s.not}
	for _, r := range in {
		c.In = append(c.In, []Range{r})
	}
	s.rule.Conditions = append(s.rule.Conditions, c)
}

// condition reads one that begins with the word.
func (s *saved) condition(word string) bool {
	switch word {
	case "-m":
		s.next() // names what the next words are of
	case "--comment":
		s.rule.Comment = s.next()
	case "-p":
		return s.protocol(s.next())
	case "-s", "-d":
		p, err := netip.ParsePrefix(s.next())
		if err != nil {
			return false
		}
		s.add(map[string]Field{"-s": Source, "-d": Destination}[word], Range{p.Masked().Addr().AsSlice(), lastOf(p)})
	case "-i", "-o":
		s.add(map[string]Field{"-i": InLink, "-o": OutLink}[word], linkRange(s.next()))
	case "--dport", "--dports", "--sport", "--sports":
		return s.ports(map[bool]Field{true: Port, false: SourcePort}[word[2] == 'd'], s.next())
	case "--dst-type", "--src-type":
		if s.next() != "LOCAL" {
			return false
		}
		local := native.AppendUint32(nil, unix.RTN_LOCAL)
		s.add(map[string]Field{"--dst-type": DestinationType, "--src-type": SourceType}[word], Range{local, local})
	case "--ctstate", "--state":
		s.states(s.next())
	default:
		return false
	}
	return true
}

func (s *saved) protocol(name string) bool {
	number, ok := protocols[model.Proto(name)]
	if !ok {
		number, ok = map[string]byte{"icmp": unix.IPPROTO_ICMP, "ipv6-icmp": unix.IPPROTO_ICMPV6, "sctp": unix.IPPROTO_SCTP}[name]
	}
	if ok {
		s.add(Protocol, Range{[]byte{number}, []byte{number}})
	}
	return ok
}

// linkRange is a link's name, or with a + at its end the beginning of one.
func linkRange(name string) Range {
	begin, prefix := strings.CutSuffix(name, "+")
	r := Range{make([]byte, linkName), make([]byte, linkName)}
	copy(r.First, begin)
	copy(r.Last, begin)
	for i := len(begin); prefix && i < linkName; i++ {
		r.Last[i] = 0xff
	}
	return r
}

// ports reads ports and ranges as in 80,443,8000:8080.
func (s *saved) ports(f Field, text string) bool {
	var all []Range
	for _, part := range strings.Split(text, ",") {
		r, ok := savedPorts(part, ":")
		if !ok {
			return false
		}
		all = append(all, portsOf(r.First, r.Last))
	}
	s.add(f, all...)
	return true
}

func savedPorts(text, between string) (model.PortRange, bool) {
	first, last, isRange := strings.Cut(text, between)
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	return model.PortRange{First: uint16(a), Last: uint16(b)}, errA == nil && errB == nil
}

func (s *saved) states(text string) {
	var state, status uint32
	for _, name := range strings.Split(strings.ToLower(text), ",") {
		for i, n := range bitNames[State] {
			if n == name {
				state |= 1 << i
			}
		}
		if name == "dnat" {
			status = statusNAT
		}
	}
	f, mask := State, state
	if state == 0 && status != 0 {
		f, mask = Status, status
	}
	s.rule.Conditions = append(s.rule.Conditions, Condition{Fields: []Field{f}, Not: s.not, Any: native.AppendUint32(nil, mask)})
}

// action reads what follows -j or -g, and where NAT leads.
func (s *saved) action(word string) bool {
	switch word {
	case "-j":
		target := s.next()
		known := map[string]Action{"ACCEPT": Accept, "DROP": Drop, "REJECT": Reject, "RETURN": Return, "DNAT": DNAT, "SNAT": SNAT,
			"MASQUERADE": Masquerade, "REDIRECT": Redirect, "NOTRACK": NoTrack, "LOG": None, "NFLOG": None, "MARK": None, "TCPMSS": None}
		action, ok := known[target]
		if !ok {
			s.rule.Action, s.rule.Chain = Jump, target
		} else if s.rule.Action = action; action == None || action == Reject {
			s.words = nil // the rest says how
		}
	case "-g":
		s.rule.Action, s.rule.Chain = Goto, s.next()
	case "--to-destination", "--to-source":
		return s.to(s.next())
	case "--to-ports":
		ports, ok := savedPorts(s.next(), "-")
		s.rule.ToPorts = ports
		return ok
	default:
		return false
	}
	return true
}

// to reads an address, with a port or ports or without.
func (s *saved) to(text string) bool {
	if a, err := netip.ParseAddr(text); err == nil {
		s.rule.To = a
		return true
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return false
	}
	if text[:i] != "" {
		a, err := netip.ParseAddr(strings.Trim(text[:i], "[]"))
		if err != nil {
			return false
		}
		s.rule.To = a
	}
	ports, ok := savedPorts(text[i+1:], "-")
	s.rule.ToPorts = ports
	return ok
}
