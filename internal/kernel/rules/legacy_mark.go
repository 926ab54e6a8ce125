package rules

import (
	"strconv"
	"strings"
)

// mark parses a value with or without a mask, such as 0x1/0xff.
func (s *saved) mark(text string) bool {
	f, ok := map[string]Field{"mark": Mark, "connmark": CtMark}[s.match]
	value, mask, err := markWords(text)
	if !ok || err != nil {
		return false
	}
	s.rule.Conditions = append(s.rule.Conditions, markCondition(f, value, mask, s.not))
	return true
}

func markWords(text string) (value, mask uint32, err error) {
	first, second, masked := strings.Cut(text, "/")
	v, err := strconv.ParseUint(first, 0, 32)
	m := uint64(allBits)
	if masked && err == nil {
		m, err = strconv.ParseUint(second, 0, 32)
	}
	return uint32(v), uint32(m), err
}

// marks parses MARK, CONNMARK and CT, and returns the words if it does not support
// them.
func (s *saved) marks(words []string) []string {
	value := map[string]string{}
	for i := 0; i+1 < len(words); i++ {
		value[words[i]] = words[i+1]
	}
	number := func(name string) uint32 {
		if value[name] == "" {
			return allBits
		}
		n, _, err := markWords(value[name])
		s.rule.Partial = s.rule.Partial || err != nil
		return n
	}
	switch {
	case len(words) == 0:
	case s.target == "CT" && words[0] == "--notrack":
		s.rule.Action = NoTrack
	case s.target == "MARK" && words[0] == "--set-xmark":
		v, mask, err := markWords(value["--set-xmark"])
		s.rule.Partial = s.rule.Partial || err != nil
		s.rule.Assigns = []Assign{{To: Mark, Mark: ^mask, Xor: v}}
	case s.target == "CONNMARK" && words[0] == "--set-xmark":
		v, mask, err := markWords(value["--set-xmark"])
		s.rule.Partial = s.rule.Partial || err != nil
		s.rule.Assigns = []Assign{connmark(connmarkSet, v, mask, 0)}
	case s.target == "CONNMARK" && words[0] == "--save-mark":
		s.rule.Assigns = []Assign{connmark(connmarkSave, 0, number("--ctmask"), number("--nfmask"))}
	case s.target == "CONNMARK" && words[0] == "--restore-mark":
		s.rule.Assigns = []Assign{connmark(connmarkRestore, 0, number("--ctmask"), number("--nfmask"))}
	default:
		return words
	}
	return nil
}
