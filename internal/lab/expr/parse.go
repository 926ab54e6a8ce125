package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parse parses a condition. It does not check names of paths or workloads: see
// [Expr.Check]. Returns an *[Error] if the source is not a condition.
func Parse(source string) (*Expr, error) {
	p := &parser{source: source, rest: source}
	root, err := p.condition()
	if err != nil {
		return nil, err
	}
	if p.skip(); p.rest != "" {
		return nil, p.fault("expected && or || or the end")
	}
	if len(root.figures()) == 0 {
		return nil, &Error{source, 1, "the condition names no path, so it does not depend on the session"}
	}
	return &Expr{source: source, root: root}, nil
}

// parser is a position in the source; rest is the unread part.
type parser struct {
	source, rest string
	// references are those to earlier sessions in the comparison that is being read.
	references []*earlier
}

// column is the column of the parser's position, from 1.
func (p *parser) column() int {
	return utf8.RuneCountInString(p.source[:len(p.source)-len(p.rest)]) + 1
}

func (p *parser) fault(cause string) error { return &Error{p.source, p.column(), cause} }

func (p *parser) skip() { p.rest = strings.TrimLeft(p.rest, " \t\n") }

// take reads the first of the signs that matches, or returns "".
func (p *parser) take(signs ...string) string {
	p.skip()
	for _, s := range signs {
		if rest, found := strings.CutPrefix(p.rest, s); found {
			p.rest = rest
			return s
		}
	}
	return ""
}

func (p *parser) condition() (node, error) {
	return p.binary(func() (node, error) { return p.binary(p.single, "&&") }, "||")
}

func (p *parser) single() (node, error) {
	if p.take("(") == "" {
		return p.comparison()
	}
	inner, err := p.condition()
	if err == nil && p.take(")") == "" {
		err = p.fault("expected )")
	}
	return inner, err
}

func (p *parser) comparison() (node, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	sign := p.take("<=", ">=", "==", "!=", "<", ">")
	if sign == "" {
		return nil, p.fault("expected a comparison: < <= > >= == !=")
	}
	right, err := p.operand()
	if err != nil {
		return nil, err
	}
	c := binary{left, right, sign}
	return c, p.bind(c.figures())
}

// operand reads a sum of products.
func (p *parser) operand() (node, error) {
	return p.binary(func() (node, error) { return p.binary(p.one, "*") }, "+", "-")
}

// binary reads parts with one of the signs between them.
func (p *parser) binary(part func() (node, error), signs ...string) (node, error) {
	left, err := part()
	for err == nil {
		sign := p.take(signs...)
		if sign == "" {
			break
		}
		var right node
		right, err = part()
		left = binary{left, right, sign}
	}
	return left, err
}

// one reads a number, a reference to earlier sessions, or a figure.
func (p *parser) one() (node, error) {
	p.skip()
	switch {
	case p.rest == "":
		return nil, p.fault("expected a number or a path")
	case strings.ContainsRune("+-.0123456789", rune(p.rest[0])):
		return p.number()
	case strings.HasPrefix(p.rest, "history."):
		return p.earlier()
	}
	return p.figure()
}

func (p *parser) number() (node, error) {
	length := 0
	for i, r := range p.rest {
		sign := (r == '+' || r == '-') && (i == 0 || strings.ContainsRune("eE", rune(p.rest[i-1])))
		if !sign && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		length = i + utf8.RuneLen(r)
	}
	text := p.rest[:length]
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, p.fault(fmt.Sprintf("%q is not a number; write base units, such as 1e9 for 1 Gbit/s", text))
	}
	p.rest = p.rest[length:]
	return number(n), nil
}

// fields are the names that may end a figure.
var fields = []string{"value", "low", "high", "worst", "ratio", "ratio_low", "ratio_high", "ratio_session_low",
	"ratio_session_high", "p", "noise", "rounds", "invalid"}

// ofName reports whether a name may contain a character.
func ofName(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' || r == ':'
}

// beginsName reports whether text continues a name.
func beginsName(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return text != "" && (ofName(r) || r == '.')
}

// figure reads path.selector….field.
func (p *parser) figure() (*figure, error) {
	start := p.rest
	f := &figure{column: p.column(), field: "value"}
	var words []word
	for {
		w := word{column: p.column()}
		end := strings.IndexFunc(p.rest, func(r rune) bool { return !ofName(r) })
		if end < 0 {
			end = len(p.rest)
		}
		if w.text = p.rest[:end]; w.text == "" {
			return nil, p.fault("expected a name")
		}
		p.rest = p.rest[end:]
		words = append(words, w)
		if !strings.HasPrefix(p.rest, ".") {
			break
		}
		p.rest = p.rest[1:]
	}
	f.text = start[:len(start)-len(p.rest)]
	f.path, f.selectors = words[0].text, words[1:]
	if n := len(f.selectors); n > 0 && slices.Contains(fields, f.selectors[n-1].text) {
		f.field, f.selectors = f.selectors[n-1].text, f.selectors[:n-1]
	}
	return f, nil
}
