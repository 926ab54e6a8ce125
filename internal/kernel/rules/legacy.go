package rules

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// LegacyMark is the suffix that Fairlead adds to the names of legacy iptables' tables,
// to distinguish them from nftables' tables.
const LegacyMark = " (legacy)"

// hooks maps the names of iptables' chains to those of nftables' hooks.
var hooks = map[string]string{"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output",
	"POSTROUTING": "postrouting"}

// Saved parses the output of `iptables-legacy-save` or, for the family ip6, of
// `ip6tables-legacy-save`. Rules that it does not support become Partial.
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
	switch {
	case table == "nat":
		c.Type = "nat"
	case table == "mangle" && name == "OUTPUT":
		c.Type = "route"
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

// supportedMatches are the modules of matches of which at least some options are
// supported. The others match something also without options.
var supportedMatches = []string{"addrtype", "comment", "connmark", "conntrack", "icmp", "icmp6", "mac", "mark",
	"multiport", "state", "tcp", "udp"}

// splitQuoted splits at spaces that are not in quotes. A backslash in quotes precedes a
// character that is part of the text.
func splitQuoted(line string) []string {
	var fields []string
	var field strings.Builder
	quoted, begun, escaped := false, false, false
	for _, c := range line {
		switch {
		case escaped:
			field.WriteRune(c)
			escaped = false
		case c == '\\' && quoted:
			escaped = true
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

// savedRule parses a rule's words. An unknown word makes the rule Partial.
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
		s.rule.Unread = append(s.rule.Unread, strings.TrimSpace(s.match+" "+word))
		for s.more() && !strings.HasPrefix(s.words[0], "-") && s.words[0] != "!" {
			s.next()
		}
		s.not = false
	}
	return s.rule
}

// saved is the state while a rule is parsed; words are the remaining ones.
type saved struct {
	family string
	words  []string
	not    bool
	rule   Rule
	// match and target are the module that the next words belong to.
	match, target string
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

// condition parses a condition that begins with the word, and returns false if it
// does not support it.
func (s *saved) condition(word string) bool {
	switch word {
	case "-m":
		s.match = s.next()
		return slices.Contains(supportedMatches, s.match)
	case "--comment":
		s.rule.Comment = s.next()
	case "-p":
		return s.protocol(s.next())
	case "-s", "-d":
		p, err := netip.ParsePrefix(s.next())
		if err != nil {
			return false
		}
		s.add(map[string]Field{"-s": Source, "-d": Destination}[word], Range{p.Masked().Addr().AsSlice(), LastOf(p)})
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
		return s.states(s.next())
	case "--mark":
		return s.mark(s.next())
	case "--tcp-flags":
		mask, errMask := flagBits(s.next())
		flags, errFlags := flagBits(s.next())
		s.rule.Conditions = append(s.rule.Conditions, flagsCondition(mask, flags, s.not))
		return errMask == nil && errFlags == nil
	case "--mac-source":
		mac, err := net.ParseMAC(s.next())
		s.add(EtherSource, Range{mac, mac})
		return err == nil
	case "--icmp-type", "--icmpv6-type":
		kind, _, hasCode := strings.Cut(s.next(), "/")
		number, err := strconv.ParseUint(kind, 10, 8)
		if err == nil {
			s.add(ICMPType, Range{[]byte{byte(number)}, []byte{byte(number)}})
		}
		return err == nil && !hasCode
	default:
		return false
	}
	return true
}

// flagBits parses TCP flags such as SYN,ACK.
func flagBits(text string) (byte, error) {
	names := []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"}
	var bits byte
	for _, name := range strings.Split(text, ",") {
		i := slices.Index(names, name)
		switch {
		case i >= 0:
			bits |= 1 << i
		case name == "ALL":
			bits |= 1<<len(names) - 1
		case name != "NONE":
			return 0, fmt.Errorf("TCP flag %q", name)
		}
	}
	return bits, nil
}

func (s *saved) protocol(name string) bool {
	number, ok := protocols[model.Proto(name)]
	if !ok {
		number, ok = map[string]byte{"icmp": unix.IPPROTO_ICMP, "ipv6-icmp": unix.IPPROTO_ICMPV6,
			"sctp": unix.IPPROTO_SCTP}[name]
	}
	if ok {
		s.add(Protocol, Range{[]byte{number}, []byte{number}})
	}
	return ok
}

// linkRange returns the range for a link's name. A + at the end stands for any
// suffix.
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

// ports parses ports and ranges such as 80,443,8000:8080.
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

// xtStates are the names of the bits of XTState.
var xtStates = map[string]uint16{"invalid": 1 << 0, "established": 1 << 1, "related": 1 << 2, "new": 1 << 3,
	"snat": xtSourceNAT, "dnat": xtDestinationNAT, "untracked": xtUntracked}

func (s *saved) states(text string) bool {
	var mask uint16
	for _, name := range strings.Split(strings.ToLower(text), ",") {
		bit, ok := xtStates[name]
		if !ok {
			return false
		}
		mask |= bit
	}
	c := stateCondition(mask)
	c.Not = s.not
	s.rule.Conditions = append(s.rule.Conditions, c)
	return true
}

// action parses -j, -g and the targets of NAT, and returns false if it does not
// support the word.
func (s *saved) action(word string) bool {
	switch word {
	case "-j":
		return s.jump(s.next())
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

// jump parses a target. If the target is not a known action, it is taken as a
// chain; whether that exists is checked when the chain is followed.
func (s *saved) jump(target string) bool {
	known := map[string]Action{"ACCEPT": Accept, "DROP": Drop, "REJECT": Reject, "RETURN": Return, "DNAT": DNAT,
		"SNAT":       SNAT,
		"MASQUERADE": Masquerade, "REDIRECT": Redirect, "NOTRACK": NoTrack}
	action, ok := known[target]
	s.target = target
	switch {
	case ok:
		if s.rule.Action = action; action == Reject {
			s.words = nil // the remaining words only select the kind of rejection
		}
	case slices.Contains(harmless, target):
		s.rule.alters(target)
		s.words = nil
	case target == "MARK" || target == "CONNMARK" || target == "CT":
		if left := s.marks(s.words); left != nil {
			s.rule.Action = Other
		}
		s.words = nil
	default:
		s.rule.Action, s.rule.Chain = Jump, target
	}
	return true
}

// to parses an address with or without a port or port range.
func (s *saved) to(text string) bool {
	if s.addresses(text) {
		return true
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 || text[:i] != "" && !s.addresses(text[:i]) {
		return false
	}
	ports, ok := savedPorts(text[i+1:], "-")
	s.rule.ToPorts = ports
	return ok
}

// addresses parses an address, or a range of addresses.
func (s *saved) addresses(text string) bool {
	first, last, isRange := strings.Cut(strings.NewReplacer("[", "", "]", "").Replace(text), "-")
	a, err := netip.ParseAddr(first)
	if err != nil {
		return false
	}
	s.rule.To = a
	if isRange {
		end, err := netip.ParseAddr(last)
		s.rule.lastAddress(end)
		return err == nil
	}
	return true
}
