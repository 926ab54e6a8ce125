package nft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// words are the words of a text that are not compiled yet.
type words []string

// split returns the words of a text. Lines and statements end with a semicolon. Several bits are one word.
func split(text string) words { return strings.Fields(separated.Replace(text)) }

var separated = strings.NewReplacer("\n", " ; ", ";", " ; ", "{", " { ", "}", " } ", " | ", ",", "(", "", ")", "")

// next takes a word. It returns "" at the end.
func (w *words) next() string {
	if len(*w) == 0 {
		return ""
	}
	word := (*w)[0]
	*w = (*w)[1:]
	return word
}

// take takes the next word if it is this one.
func (w *words) take(word string) bool {
	if len(*w) == 0 || (*w)[0] != word {
		return false
	}
	*w = (*w)[1:]
	return true
}

func (w *words) expect(word string) {
	if !w.take(word) {
		panic(fmt.Sprintf("compile an nft rule: want %q before %q", word, *w))
	}
}

// name takes the name of a set or a flowtable.
func (w *words) name() string { return strings.TrimPrefix(w.next(), "@") }

// phrase returns the next words.
func (w *words) phrase(n int) string { return strings.Join((*w)[:n], " ") }

// line takes the words up to a semicolon.
func (w *words) line() words {
	all := *w
	end := slices.Index(all, ";")
	if end < 0 {
		*w = nil
		return all
	}
	*w = all[end+1:]
	return all[:end]
}

// block takes the words between braces.
func (w *words) block() words {
	w.expect("{")
	all, depth := *w, 1
	for depth > 0 {
		switch w.next() {
		case "{":
			depth++
		case "}":
			depth--
		}
	}
	return all[:len(all)-len(*w)-1]
}

// definition is a table as its text defines it.
type definition struct {
	*nftables.Table
	sets []*nftables.Set
	// elements are those of the sets, by their names.
	elements map[string][]nftables.SetElement
	chains   []chain
}

// chain is a chain with its rules.
type chain struct {
	name  string
	hook  *nftables.ChainHook
	prio  nftables.ChainPriority
	kind  nftables.ChainType
	rules [][]expr.Any
}

// compileTable returns the content of a table of family inet.
func compileTable(name, text string) definition {
	d := definition{Table: &nftables.Table{Name: name, Family: nftables.TableFamilyINet},
		elements: map[string][]nftables.SetElement{}}
	for all := split(text); len(all) > 0; {
		switch all.next() {
		case "set", "map":
			d.set(all.next(), all.block())
		case "chain":
			d.chain(all.next(), all.block())
		case "flowtable": // which is no set
			all.next()
			all.block()
		}
	}
	return d
}

func (d *definition) set(name string, all words) {
	s := &nftables.Set{Table: d.Table, Name: name}
	d.sets = append(d.sets, s)
	for len(all) > 0 {
		line := all.line()
		switch line.next() {
		case "type":
			key, data, isMap := strings.Cut(strings.Join(line, " "), " : ")
			s.KeyType, s.IsMap = typeOf(key), isMap
			s.Concatenation = strings.Contains(key, " . ")
			if isMap {
				s.DataType = typeOf(data)
			}
			if s.KeyType == nftables.TypeIFName { // else nft(8) shows the names as empty
				s.KeyByteOrder = binaryutil.NativeEndian
			}
		case "flags":
			s.Interval = line.take("interval")
		case "counter":
			s.Counter = true
		case "elements":
			line.expect("=")
			for text := range strings.SplitSeq(strings.Join(line.block(), " "), ", ") {
				d.elements[name] = append(d.elements[name], nftables.SetElement{Key: keyOf(s.KeyType, text)})
			}
		}
	}
}

// typeOf returns a type by its name, or the concatenation of several.
func typeOf(names string) nftables.SetDatatype {
	all := nftables.ConcatSetTypeElements(nftables.SetDatatype{Name: names})
	if len(all) == 1 {
		return all[0]
	}
	return nftables.MustConcatSetType(all...)
}

// keyOf returns a key. Each field of a concatenation is padded to 4 bytes.
func keyOf(kind nftables.SetDatatype, text string) (key []byte) {
	kinds := nftables.ConcatSetTypeElements(kind)
	for i, word := range strings.Split(text, " . ") {
		key = append(key, valueOf(kinds[i], word)...)
		key = append(key, make([]byte, (4-len(key)%4)%4)...)
	}
	return key
}

// The hooks and priorities of chains by their names.
var (
	hooks = map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting,
		"input": nftables.ChainHookInput, "forward": nftables.ChainHookForward, "output": nftables.ChainHookOutput,
		"postrouting": nftables.ChainHookPostrouting}
	priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "srcnat": 100}
)

func (d *definition) chain(name string, all words) {
	ch := chain{name: name}
	for len(all) > 0 {
		line := all.line()
		switch {
		case line.take("type"):
			ch.kind = nftables.ChainType(line.next())
			line.expect("hook")
			ch.hook = hooks[line.next()]
			line.expect("priority")
			ch.prio = priorityOf(line)
		case len(line) > 0 && line[0] != "policy":
			ch.rules = append(ch.rules, compileRule(line, d.sets))
		}
	}
	d.chains = append(d.chains, ch)
}

// priorityOf returns a priority: a number, or a name with or without an offset.
func priorityOf(line words) nftables.ChainPriority {
	word := line.next()
	at, named := priorities[word]
	if !named {
		at, _ = strconv.Atoi(word)
	}
	offset, _ := strconv.Atoi(strings.Join(line, "")) // 0 if there is none
	return nftables.ChainPriority(at + offset)
}
